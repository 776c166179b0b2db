/* SPDX-License-Identifier: MIT
 *
 * Writing from the buffer's end to its start: last field first, what is inside before what is
 * around it. So the length of a nested message is known when it is to be written, and no pass over
 * the message is needed to learn it; protobuf-c makes one for each level. What the fields are and
 * where they stand in the structs is told by the tables that protoc-c generates.
 *
 * It knows the types that our messages have and no others; a unit test holds each field of each
 * message against protobuf-c's own bytes.
 */
#include "proto/encode.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_BYTES = 2 };

struct encoder {
	unsigned char *start, *at; /* what has been written goes from at to the buffer's end */
};

static int put_long_varint(struct encoder *e, uint64_t v)
{
	/* Seven bits a byte; the same as dividing by 7, for 64 bits at most. */
	unsigned n = ((unsigned)(63 - __builtin_clzll(v | 1)) * 9 + 73) / 64;
	unsigned char *at = e->at - n;

	if ((size_t)(e->at - e->start) < n)
		return -EMSGSIZE;
	e->at = at;
	for (; v >= 128; v >>= 7)
		*at++ = (unsigned char)(v | 0x80);
	*at = (unsigned char)v;
	return 0;
}

/* Most are of one byte: tags, lengths, states, counts. */
static inline int put_varint(struct encoder *e, uint64_t v)
{
	if (v >= 128 || e->at == e->start)
		return put_long_varint(e, v);
	*--e->at = (unsigned char)v;
	return 0;
}

/* What has been written since `end` becomes a field's value: its length, before it. */
static int put_length(struct encoder *e, const unsigned char *end)
{
	return put_varint(e, (uint64_t)(end - e->at));
}

static inline int put_tag(struct encoder *e, const ProtobufCFieldDescriptor *f, enum wire_type wire)
{
	return put_varint(e, f->id << 3 | wire);
}

static inline uint64_t zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

/* A number as the wire has it. */
static inline uint64_t scalar(ProtobufCType type, const void *at)
{
	switch (type) {
	case PROTOBUF_C_TYPE_UINT32:
		return *(const uint32_t *)at;
	case PROTOBUF_C_TYPE_UINT64:
		return *(const uint64_t *)at;
	case PROTOBUF_C_TYPE_BOOL:
		return *(const protobuf_c_boolean *)at != 0;
	case PROTOBUF_C_TYPE_ENUM: /* as int32 is: a negative one has ten bytes */
		return (uint64_t)(int64_t) * (const int *)at;
	case PROTOBUF_C_TYPE_SINT32:
		return zigzag(*(const int32_t *)at);
	default:
		assert(type == PROTOBUF_C_TYPE_SINT64);
		return zigzag(*(const int64_t *)at);
	}
}

static int put_message(struct encoder *e, const ProtobufCMessage *m);

static int put_bytes(struct encoder *e, const ProtobufCBinaryData *b)
{
	if ((size_t)(e->at - e->start) < b->len)
		return -EMSGSIZE;
	e->at -= b->len;
	if (b->len)
		memcpy(e->at, b->data, b->len);
	return put_varint(e, b->len);
}

static int put_nested(struct encoder *e, const ProtobufCMessage *m)
{
	const unsigned char *end = e->at;
	int r = put_message(e, m);

	return r < 0 ? r : put_length(e, end);
}

/* One value and its tag. */
static inline int put_value(struct encoder *e, const ProtobufCFieldDescriptor *f, const void *at)
{
	enum wire_type wire = WIRE_BYTES;
	int r;

	if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
		r = put_nested(e, *(const ProtobufCMessage *const *)at);
	} else if (f->type == PROTOBUF_C_TYPE_BYTES) {
		r = put_bytes(e, at);
	} else {
		r = put_varint(e, scalar(f->type, at));
		wire = WIRE_VARINT;
	}
	return r < 0 ? r : put_tag(e, f, wire);
}

static size_t size_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_SINT64:
		return sizeof(uint64_t);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	default:
		return sizeof(uint32_t);
	}
}

static int put_packed(struct encoder *e, const ProtobufCFieldDescriptor *f, const char *values,
		      size_t n)
{
	const unsigned char *end = e->at;
	int r = 0;

	while (r == 0 && n-- > 0)
		r = put_varint(e, scalar(f->type, values + n * size_of(f->type)));
	if (r == 0)
		r = put_length(e, end);
	return r < 0 ? r : put_tag(e, f, WIRE_BYTES);
}

static int put_repeated(struct encoder *e, const ProtobufCFieldDescriptor *f, const char *m)
{
	size_t n = *(const size_t *)(m + f->quantifier_offset);
	const char *values = *(const char *const *)(m + f->offset);
	int r = 0;

	if (n > 0 && f->flags & PROTOBUF_C_FIELD_FLAG_PACKED)
		return put_packed(e, f, values, n);
	while (r == 0 && n-- > 0)
		r = put_value(e, f, values + n * size_of(f->type));
	return r;
}

static inline bool is_set(const ProtobufCFieldDescriptor *f, const char *m)
{
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
	    *(const uint32_t *)(m + f->quantifier_offset) != f->id)
		return false;
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return *(const void *const *)(m + f->offset);
	return *(const protobuf_c_boolean *)(m + f->quantifier_offset);
}

static int put_message(struct encoder *e, const ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	const char *at = (const char *)m;
	int r = 0;

	for (unsigned i = d->n_fields; r == 0 && i-- > 0;) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];

		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			r = put_repeated(e, f, at);
		else if (is_set(f, at))
			r = put_value(e, f, at + f->offset);
	}
	return r;
}

int encode_message(const ProtobufCMessage *m, unsigned char *buf, size_t size, struct encoded *ret)
{
	struct encoder e = { buf, buf + size };
	int r = put_message(&e, m);

	if (r == 0)
		*ret = (struct encoded){ e.at, (size_t)(buf + size - e.at) };
	return r;
}
