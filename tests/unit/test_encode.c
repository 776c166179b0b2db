/* SPDX-License-Identifier: MIT
 *
 * Our encoder against protobuf-c's: thousands of random messages of every type that the protocol
 * and the journal have must become the same bytes.
 */
#include "gpushm.pb-c.h"
#include "journal.pb-c.h"
#include "proto/encode.h"
#include "proto/own.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 4000
#define REPEATED_MAX 4

static const ProtobufCMessageDescriptor *const messages[] = {
	&gpushm__proto__request__descriptor,  &gpushm__proto__reply__descriptor,
	&gpushm__journal__daemon__descriptor, &gpushm__journal__complete__descriptor,
	&gpushm__journal__pool__descriptor,   &gpushm__journal__buffer__descriptor,
	&gpushm__journal__lease__descriptor,  &gpushm__journal__id__descriptor,
};

static unsigned char ours[1 << 20], theirs[1 << 20], memory[4 << 20];
static size_t used;
static uint64_t state;

static uint64_t next_random(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 16 ^ state >> 40;
}

/* Numbers of every length, ends of ranges among them. */
static uint64_t any_number(void)
{
	uint64_t v = next_random() << 16 ^ next_random();

	switch (next_random() % 6) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return 1ull << v % 64;
	default:
		return v >> next_random() % 64;
	}
}

static void *take(size_t n)
{
	void *p = memory + used;

	used += (n + 15) & ~(size_t)15;
	ck_assert_uint_le(used, sizeof(memory));
	memset(p, 0, n);
	return p;
}

static ProtobufCMessage *any_message(const ProtobufCMessageDescriptor *d);

/* Writes a value and returns its size. */
static size_t any_value(const ProtobufCFieldDescriptor *f, char *at)
{
	uint64_t v = any_number();
	ProtobufCBinaryData bytes = { v % 300, NULL };
	void *nested;

	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		nested = any_message(f->descriptor);
		memcpy(at, &nested, sizeof(nested));
		return sizeof(nested);
	case PROTOBUF_C_TYPE_BYTES:
		bytes.data = take(bytes.len + 1);
		memset(bytes.data, (int)v, bytes.len);
		memcpy(at, &bytes, sizeof(bytes));
		return sizeof(bytes);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_SINT64:
		memcpy(at, &v, sizeof(v));
		return sizeof(v);
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)at = v & 1;
		return sizeof(protobuf_c_boolean);
	default:
		memcpy(at, &v, sizeof(uint32_t));
		return sizeof(uint32_t);
	}
}

static void any_repeated(const ProtobufCFieldDescriptor *f, char *m)
{
	size_t n = next_random() % (REPEATED_MAX + 1);
	char *values = take(REPEATED_MAX * sizeof(ProtobufCBinaryData)), *at = values;

	for (size_t i = 0; i < n; i++)
		at += any_value(f, at);
	memcpy(m + f->quantifier_offset, &n, sizeof(n));
	memcpy(m + f->offset, &values, sizeof(values));
}

static void any_field(const ProtobufCFieldDescriptor *f, char *m)
{
	const uint32_t id = f->id;

	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		any_repeated(f, m);
		return;
	}
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		memcpy(m + f->quantifier_offset, &id, sizeof(id));
	else if (f->type != PROTOBUF_C_TYPE_MESSAGE)
		*(protobuf_c_boolean *)(m + f->quantifier_offset) = 1;
	any_value(f, m + f->offset);
}

static ProtobufCMessage *any_message(const ProtobufCMessageDescriptor *d)
{
	ProtobufCMessage *m = take(d->sizeof_message);
	unsigned chosen = d->n_fields ? (unsigned)(next_random() % d->n_fields) : 0;

	protobuf_c_message_init(d, m);
	for (unsigned i = 0; i < d->n_fields; i++)
		if (d->fields[i].flags & PROTOBUF_C_FIELD_FLAG_ONEOF ? i == chosen
								     : next_random() % 3 > 0)
			any_field(&d->fields[i], (char *)m);
	return m;
}

START_TEST(a_message_is_encoded_to_other_bytes)
{
	const ProtobufCMessageDescriptor *d = messages[_i];

	for (unsigned round = 1; round < ROUNDS; round++) {
		const ProtobufCMessage *m;
		struct encoded e = { 0 };
		size_t n;

		state = round;
		used = 0;
		m = any_message(d);
		n = protobuf_c_message_pack(m, theirs);
		ck_assert_int_eq(encode_message(m, ours, sizeof(ours), &e), 0);
		ck_assert_uint_eq(e.len, n);
		ck_assert_msg(n == 0 || memcmp(e.data, theirs, n) == 0, "%s, round %u", d->name,
			      round);
		ck_assert_ptr_eq(e.data + e.len, ours + sizeof(ours));
	}
}
END_TEST

/* With one byte less than it needs, or many less, it is refused, and nothing is written before the
 * buffer. */
START_TEST(a_message_that_does_not_fit_is_written_all_the_same)
{
	struct encoded e = { 0 };

	for (unsigned round = 1; round < 200; round++) {
		const ProtobufCMessage *m;
		size_t n;

		state = round;
		used = 0;
		m = any_message(messages[round % array_size(messages)]);
		n = protobuf_c_message_get_packed_size(m);
		ck_assert_int_eq(encode_message(m, ours, n, &e), 0);
		for (size_t room = 0; room < n; room += 1 + (n - room) / 16) {
			memset(ours, 0xa5, 64);
			ck_assert_int_eq(encode_message(m, ours + 64, room, &e), -EMSGSIZE);
			for (int i = 0; i < 64; i++)
				ck_assert_uint_eq(ours[i], 0xa5);
		}
	}
}
END_TEST

static Suite *encode_suite(void)
{
	Suite *s = suite_create("encode");
	TCase *t = tcase_create("against protobuf-c");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, a_message_is_encoded_to_other_bytes, 0, array_size(messages));
	tcase_add_test(t, a_message_that_does_not_fit_is_written_all_the_same);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(encode_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
