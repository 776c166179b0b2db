/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a request and as a reply: unpacked within the budget of a frame; then every field of
 * every message is read, as the code that decodes it would. An unpacked message must pack into
 * bytes that unpack again.
 *
 * Fields are found through protobuf-c's descriptors, so a new message is covered at once.
 */
#include "proto/base/arena.h"
#include "proto/limits.h"

#include "gpushm.pb-c.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t seen;

static void walk(const struct arena *a, const ProtobufCMessage *m);

static void read_bytes(const struct arena *a, const void *p, size_t len)
{
	const unsigned char *bytes = p;

	if (len > 0 && (bytes < a->memory || bytes + len > a->memory + a->used))
		abort();
	for (size_t i = 0; i < len; i++)
		seen += bytes[i];
}

/* One element of a field, at p. */
static void read_element(const struct arena *a, const ProtobufCFieldDescriptor *f, const char *p)
{
	const ProtobufCBinaryData *bytes = (const void *)p;

	if (f->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage *const *)p)
		walk(a, *(ProtobufCMessage *const *)p);
	else if (f->type == PROTOBUF_C_TYPE_BYTES)
		read_bytes(a, bytes->data, bytes->len);
}

static size_t element_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(ProtobufCMessage *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_SINT64:
		return sizeof(uint64_t);
	default:
		return sizeof(uint32_t);
	}
}

static void walk_field(const struct arena *a, const ProtobufCFieldDescriptor *f, const char *m)
{
	const char *at = m + f->offset;
	const char *elements;
	size_t n;

	if (f->label != PROTOBUF_C_LABEL_REPEATED) {
		read_element(a, f, at);
		return;
	}
	n = *(const size_t *)(m + f->quantifier_offset);
	elements = *(const char *const *)at;
	read_bytes(a, elements, n * element_size(f));
	for (size_t i = 0; i < n; i++)
		read_element(a, f, elements + i * element_size(f));
}

/* A member of a oneof is present only if the oneof's case says so; its quantifier holds the case.
 */
static bool is_there(const ProtobufCFieldDescriptor *f, const char *m)
{
	return !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
	       *(const uint32_t *)(m + f->quantifier_offset) == f->id;
}

static void walk(const struct arena *a, const ProtobufCMessage *m)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

		if (is_there(f, (const char *)m))
			walk_field(a, f, (const char *)m);
	}
	for (unsigned i = 0; i < m->n_unknown_fields; i++)
		read_bytes(a, m->unknown_fields[i].data, m->unknown_fields[i].len);
}

static void try_as(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
	/* One for all inputs, as the daemon and a connection have it. */
	static struct arena a;
	ProtobufCMessage *m;

	if (!a.memory && arena_init(&a, UNPACK_MAX) < 0)
		abort();
	arena_reset(&a);
	m = protobuf_c_message_unpack(type, &a.allocator, size, data);
	if (m)
		walk(&a, m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > FRAME_MAX)
		return 0;
	try_as(&gpushm__proto__request__descriptor, data, size);
	try_as(&gpushm__proto__reply__descriptor, data, size);
	return 0;
}
