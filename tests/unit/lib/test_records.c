/* SPDX-License-Identifier: MIT
 *
 * The tables of client/records.txt: they have each field of their messages and each member of their
 * structs, a member's names are one record's own, and what is read is what was sent. And the memory
 * of results.
 */
#define RECORD_WIRE(message, field, has) , offsetof(Gpushm__Proto__##message, field), 1
#include "client/gpushm_query.h"
#include "client/lib/link/connection.h"
#include "client/lib/link/records.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdalign.h>
#include <stdio.h>

#include "records_table.h"

static const struct {
	const struct record *record;
	const ProtobufCMessageDescriptor *message;
	const char *other; /* fields that the library itself needs, or that no struct has */
} records[] = {
	{ &holder_record, &gpushm__proto__holder__descriptor, "" },
	{ &stat_record, &gpushm__proto__buffer__descriptor, " pool " },
	{ &pool_record, &gpushm__proto__pool__descriptor, " id " },
	{ &usage_record, &gpushm__proto__usage__descriptor, "" },
	{ &refusal_record, &gpushm__proto__refusal__descriptor, "" },
	{ &status_record, &gpushm__proto__status_reply__descriptor, "" },
	{ &logged_event_record, &gpushm__proto__event__descriptor, "" },
	{ &events_record, &gpushm__proto__events_reply__descriptor, "" },
	{ &stream_reader_record, &gpushm__proto__stream_reader__descriptor,
	  " generation cursor asleep " },
	{ &stream_info_record, &gpushm__proto__stream_info__descriptor, "" },
	{ &verb_metrics_record, &gpushm__proto__verb_metrics__descriptor, " results " },
	{ &driver_call_record, &gpushm__proto__driver_call__descriptor, "" },
	{ &pool_metrics_record, &gpushm__proto__pool_metrics__descriptor, "" },
	{ &stream_metrics_record, &gpushm__proto__stream_metrics__descriptor, "" },
	{ &metrics_record, &gpushm__proto__metrics_reply__descriptor, "" },
};

static const struct record_field *row_of(const struct record *r, unsigned wire)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->fields[i].wire == wire)
			return &r->fields[i];
	return NULL;
}

START_TEST(each_field_of_a_message_has_a_row)
{
	const struct record *r = records[_i].record;

	for (unsigned i = 0; i < records[_i].message->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &records[_i].message->fields[i];
		char word[64];

		snprintf(word, sizeof(word), " %s ", f->name);
		ck_assert_msg(!row_of(r, f->offset) == !!strstr(records[_i].other, word),
			      "field %s of %s", f->name, records[_i].message->name);
	}
}
END_TEST

/* A number goes to a member of its own size: it is copied. */
START_TEST(a_member_has_the_size_of_its_field)
{
	for (unsigned i = 0; i < records[_i].message->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &records[_i].message->fields[i];
		const struct record_field *row = row_of(records[_i].record, f->offset);
		bool is_64 = f->type == PROTOBUF_C_TYPE_UINT64;

		if (row && f->label != PROTOBUF_C_LABEL_REPEATED &&
		    f->type != PROTOBUF_C_TYPE_BYTES && f->type != PROTOBUF_C_TYPE_MESSAGE &&
		    row->type != RECORD_CODE && row->type != RECORD_TYPE)
			ck_assert_msg(row->size == (is_64 ? 8 : 4), "%s of %s", row->member,
				      records[_i].record->name);
	}
}
END_TEST

static void only_once(const struct record *r, unsigned i, const char *a, const char *b)
{
	ck_assert_msg(!a || !b || strcmp(a, b) != 0, "%s: two fields \"%s\"", r->name, a);
	ck_assert_uint_lt(i, r->n);
}

/* Rows are in the order of the struct, whose first member is its size. */
START_TEST(names_are_one_field_s_own)
{
	const struct record *r = records[_i].record;
	unsigned end = sizeof(size_t);

	for (unsigned i = 0; i < r->n; i++) {
		ck_assert_uint_ge(r->fields[i].at, end);
		end = r->fields[i].at + r->fields[i].size;
		for (unsigned k = 0; k < i; k++) {
			only_once(r, i, r->fields[i].json, r->fields[k].json);
			only_once(r, i, r->fields[i].python, r->fields[k].python);
		}
	}
	ck_assert_uint_le(end, r->bytes);
}
END_TEST

/* ---- what is read ---- */

static ProtobufCBinaryData text(const char *t)
{
	return connection_bytes(t);
}

START_TEST(what_was_sent_is_read)
{
	Gpushm__Proto__Holder holder = GPUSHM__PROTO__HOLDER__INIT, *holders[] = { &holder };
	Gpushm__Proto__Attr attr = GPUSHM__PROTO__ATTR__INIT, *attrs[] = { &attr, &attr };
	Gpushm__Proto__Buffer buffer = GPUSHM__PROTO__BUFFER__INIT;
	struct result result = { 0 };
	struct gpushm_stat *s;

	holder.has_pid = holder.has_access = holder.has_command = true;
	holder.pid = 17;
	holder.access = GPUSHM__PROTO__ACCESS__ACCESS_WRITE;
	holder.command = text("python");
	attr.has_key = attr.has_value = true;
	attr.key = text("key");
	attr.value = (ProtobufCBinaryData){ 3, (uint8_t *)"a\0b" };
	buffer.has_state = buffer.has_name = buffer.has_size_bytes = buffer.has_dirty = true;
	buffer.state = GPUSHM__PROTO__STATE__STATE_SHARED;
	buffer.name = text("x/y");
	buffer.size_bytes = UINT64_MAX;
	buffer.dirty = true;
	buffer.n_holders = 1;
	buffer.holders = holders;
	buffer.n_attrs = 2;
	buffer.attrs = attrs;
	ck_assert_int_eq(records_read(&result, records_stat, &buffer.base, (void **)&s), 0);
	ck_assert_ptr_eq(result_one(&result), s);
	ck_assert_uint_eq(s->struct_size, sizeof(*s));
	ck_assert_str_eq(s->name, "x/y");
	ck_assert_str_eq(s->pool, "");
	ck_assert_int_eq(s->state, GPUSHM_SHARED);
	ck_assert_uint_eq(s->bytes, UINT64_MAX);
	ck_assert(s->dirty == 1 && s->kept == 0 && s->opens == 0);
	ck_assert_uint_eq(s->n_holders, 1);
	ck_assert_int_eq(s->holders[0]->pid, 17);
	ck_assert_str_eq(s->holders[0]->command, "python");
	ck_assert_uint_eq(s->n_attrs, 2);
	ck_assert_str_eq(s->attrs[1]->key, "key");
	ck_assert_mem_eq(s->attrs[1]->value, "a\0b", 4);
	ck_assert_ptr_null(gpushm_free(s));
}
END_TEST

START_TEST(what_is_missing_has_its_value)
{
	Gpushm__Proto__Event event = GPUSHM__PROTO__EVENT__INIT;
	Gpushm__Proto__Event *list[] = { &event };
	Gpushm__Proto__EventsReply reply = GPUSHM__PROTO__EVENTS_REPLY__INIT;
	struct result result = { 0 };
	struct gpushm_events *e;

	reply.n_events = 1;
	reply.events = list;
	ck_assert_int_eq(records_read(&result, records_events, &reply.base, (void **)&e), 0);
	ck_assert_uint_eq(e->n_events, 1);
	ck_assert_str_eq(e->events[0]->name, "");
	ck_assert_str_eq(e->events[0]->code, "");
	ck_assert_str_eq(e->events[0]->type, "unknown");
	ck_assert_uint_eq(e->events[0]->uid, (uid_t)-1);
	ck_assert_int_eq(e->events[0]->state, 0);
	result_done(&result);
}
END_TEST

/* A program that was compiled for a later library asks before it reads. */
START_TEST(a_member_of_a_later_library_is_not_there)
{
	struct gpushm_stat s = { .struct_size = offsetof(struct gpushm_stat, opens) };

	ck_assert(GPUSHM_HAS(&s, kept));
	ck_assert(!GPUSHM_HAS(&s, opens));
	ck_assert(!GPUSHM_HAS(&s, stream));
}
END_TEST

/* ---- memory ---- */

START_TEST(a_result_of_any_size_is_freed_by_its_first_pointer)
{
	for (size_t n = 0; n < 2000; n = 2 * n + 1) {
		struct result r = { 0 };
		unsigned char **list;
		size_t ret_n;

		for (size_t i = 0; i < n; i++) {
			memset(result_add(&r, 1 + i), (int)i, 1 + i);
			ck_assert_ptr_nonnull(result_alloc(&r, 0));
		}
		ck_assert_int_eq(result_list(&r, &ret_n, &list), 0);
		ck_assert_uint_eq(ret_n, n);
		ck_assert_ptr_null(r.blocks);
		for (size_t i = 0; i < n; i++) {
			ck_assert_uint_eq((uintptr_t)list[i] % alignof(max_align_t), 0);
			ck_assert_uint_eq(list[i][i], (unsigned char)i);
		}
		gpushm_free(list);
	}
	ck_assert_ptr_null(gpushm_free(NULL));
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("tables"), *read = tcase_create("read");
	int n = (int)array_size(records);

	tcase_add_loop_test(t, each_field_of_a_message_has_a_row, 0, n);
	tcase_add_loop_test(t, a_member_has_the_size_of_its_field, 0, n);
	tcase_add_loop_test(t, names_are_one_field_s_own, 0, n);
	tcase_add_test(read, what_was_sent_is_read);
	tcase_add_test(read, what_is_missing_has_its_value);
	tcase_add_test(read, a_member_of_a_later_library_is_not_there);
	tcase_add_test(read, a_result_of_any_size_is_freed_by_its_first_pointer);
	return suite_run("records", t, read, NULL);
}
