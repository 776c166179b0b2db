/* SPDX-License-Identifier: MIT
 *
 * protobuf-c's structs and ours have the same sizes for numbers, enums and bools: records_table.h
 * is compiled with both, so that a row that does not fit is an error then.
 */
#define RECORD_WIRE(message, field, has_) \
	, offsetof(Gpushm__Proto__##message, field), offsetof(Gpushm__Proto__##message, has_)
#include "client/lib/link/records.h"

#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "client/lib/base/error.h"
#include "client/lib/link/connection.h"
#include "proto/base/own.h"
#include "proto/code.h"
#include "proto/words.h"

#include "records_table.h"

const struct record *const records_stat = &stat_record, *const records_pool = &pool_record,
			   *const records_status = &status_record,
			   *const records_events = &events_record,
			   *const records_stream_info = &stream_info_record,
			   *const records_metrics = &metrics_record;

static int nonsense(const struct record *r, const struct record_field *f)
{
	return error_set(EPROTO, "the daemon's reply makes no sense: %s of a %s", f->member,
			 r->name);
}

static bool has(const struct record_field *f, const ProtobufCMessage *m)
{
	return *(const protobuf_c_boolean *)record_at(m, f->has);
}

/* ---- members of one value ---- */

static int read_text(const struct record_field *f, const ProtobufCMessage *m, char *to)
{
	const ProtobufCBinaryData *from = record_at(m, f->wire);

	return decode_text(f->member, has(f, m), *from, to, f->size);
}

static int read_string(struct result *r, const struct record_field *f, const ProtobufCMessage *m,
		       const char **ret)
{
	const ProtobufCBinaryData *from = record_at(m, f->wire);
	size_t n = has(f, m) ? from->len : 0;
	char *text = n ? result_alloc(r, n + 1) : NULL;

	*ret = n ? text : "";
	if (n && !text)
		return -ENOMEM;
	return n ? decode_text(f->member, true, *from, text, n + 1) : 0;
}

static int read_16_bytes(const struct record_field *f, const ProtobufCMessage *m, unsigned char *to)
{
	const ProtobufCBinaryData *from = record_at(m, f->wire);

	if (f->type == RECORD_UUID && !has(f, m))
		return 0;
	return decode_bytes(f->member, has(f, m), *from, to, f->size);
}

/* The first and last value of an enum; 0 is one where it may be missing. */
static unsigned last_of(enum record_type type)
{
	switch (type) {
	case RECORD_STATE:
		return GPUSHM_SHARED;
	case RECORD_ACCESS:
		return GPUSHM_WRITE;
	case RECORD_STREAM_STATE:
		return GPUSHM_STREAM_ORPHANED;
	case RECORD_KIND:
		return KIND_END - 1;
	default:
		return 0;
	}
}

/* Numbers, enums and bools. */
static int read_number(const struct record *record, const struct record_field *f,
		       const ProtobufCMessage *m, void *to)
{
	static const int none = -1;
	bool negative = f->type == RECORD_UIDN || f->type == RECORD_ORDINAL;
	bool optional = f->type == RECORD_STATEN || f->type == RECORD_ACCESSN;
	unsigned last = last_of(f->type);

	if (last && (!has(f, m) || *(const unsigned *)record_at(m, f->wire) - 1 >= last))
		return nonsense(record, f);
	if (has(f, m) || (!negative && !optional))
		memcpy(to, record_at(m, f->wire), f->size);
	else if (negative)
		memcpy(to, &none, sizeof(none));
	return 0;
}

/* ---- members of many values ---- */

static int read_attr(struct result *r, const Gpushm__Proto__Attr *from, struct gpushm_attr **ret)
{
	struct gpushm_attr *a = result_alloc(r, sizeof(*a) + from->key.len + from->value.len + 2);
	char *key, *value;

	if (!a)
		return -ENOMEM;
	key = (char *)(a + 1);
	value = key + from->key.len + 1;
	if (decode_text("an attribute's key", from->has_key, from->key, key, from->key.len + 1) < 0)
		return -EPROTO;
	if (from->value.len > 0)
		memcpy(value, from->value.data, from->value.len);
	*a = (struct gpushm_attr){ sizeof(*a), key, value, from->value.len };
	*ret = a;
	return 0;
}

static int read_struct(struct result *r, const struct record *record, const ProtobufCMessage *m,
		       void *to);

static int read_element(struct result *r, const struct record_field *f, const ProtobufCMessage *m,
			void **ret)
{
	if (f->type == RECORD_ATTRS)
		return read_attr(r, (const Gpushm__Proto__Attr *)m, (struct gpushm_attr **)ret);
	*ret = result_alloc(r, f->of->bytes);
	return *ret ? read_struct(r, f->of, m, *ret) : -ENOMEM;
}

static int read_list(struct result *r, const struct record_field *f, const ProtobufCMessage *m,
		     void *to, void *count)
{
	size_t n = *(const size_t *)record_at(m, f->has);
	ProtobufCMessage *const *from = *(ProtobufCMessage *const *const *)record_at(m, f->wire);
	void **list = result_alloc(r, (n + 1) * sizeof(*list));
	int e = list ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && e == 0; i++)
		e = read_element(r, f, from[i], &list[i]);
	*(void ***)to = list;
	*(size_t *)count = n;
	return e;
}

static int read_numbers(struct result *r, const struct record_field *f, const ProtobufCMessage *m,
			uint64_t **to, void *count)
{
	size_t n = *(const size_t *)record_at(m, f->has);

	*to = result_alloc(r, (n + 1) * sizeof(**to));
	if (!*to)
		return -ENOMEM;
	if (n)
		memcpy(*to, *(uint64_t *const *)record_at(m, f->wire), n * sizeof(**to));
	*(size_t *)count = n;
	return 0;
}

static int read_one(struct result *r, const struct record_field *f, const ProtobufCMessage *m,
		    void **to)
{
	const ProtobufCMessage *from = *(const ProtobufCMessage *const *)record_at(m, f->wire);

	return from ? read_element(r, f, from, to) : 0;
}

/* ---- structs ---- */

static int read_member(struct result *r, const struct record *record, const struct record_field *f,
		       const ProtobufCMessage *m, char *s)
{
	void *to = s + f->at;

	switch (f->type) {
	case RECORD_NAME:
	case RECORD_TEXT:
	case RECORD_LABEL:
		return read_text(f, m, to);
	case RECORD_STRING:
		return read_string(r, f, m, to);
	case RECORD_CODE:
		*(const char **)to =
			has(f, m) ? code_name(*(const int *)record_at(m, f->wire)) : "";
		return 0;
	case RECORD_TYPE:
		*(const char **)to = event_word(*(const unsigned *)record_at(m, f->wire));
		return 0;
	case RECORD_UUID:
	case RECORD_HEX16:
		return read_16_bytes(f, m, to);
	case RECORD_ATTRS:
	case RECORD_LIST:
		return read_list(r, f, m, to, s + f->count);
	case RECORD_NUMBERS:
		return read_numbers(r, f, m, to, s + f->count);
	case RECORD_ONE:
		return read_one(r, f, m, to);
	default:
		return read_number(record, f, m, to);
	}
}

static int read_struct(struct result *r, const struct record *record, const ProtobufCMessage *m,
		       void *to)
{
	int e = 0;

	*(size_t *)to = record->bytes;
	for (unsigned i = 0; i < record->n && e == 0; i++) {
		const struct record_field *f = &record->fields[i];

		if (f->wire)
			e = read_member(r, record, f, m, to);
		else if (f->type == RECORD_ORDINAL)
			*(int *)((char *)to + f->at) = -1;
	}
	return e;
}

int records_read(struct result *r, const struct record *record, const ProtobufCMessage *message,
		 void **ret)
{
	*ret = result_add(r, record->bytes);
	return *ret ? read_struct(r, record, message, *ret) : -ENOMEM;
}
