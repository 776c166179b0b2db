/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a request and as a reply: unpacked within the budget of a frame; then every field of
 * every message is read, as the code that decodes it would. An unpacked message must pack into
 * bytes that unpack again.
 */
#include "proto/base/arena.h"
#include "proto/limits.h"

#include "gpushm.pb-c.h"
#include "tests/fuzz/fields.h"

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

/* One value of a field, at p. */
static void read_value(const struct arena *a, const ProtobufCFieldDescriptor *f, const char *p)
{
	const ProtobufCBinaryData *bytes = (const void *)p;

	if (f->type == PROTOBUF_C_TYPE_MESSAGE && *(ProtobufCMessage *const *)p)
		walk(a, *(ProtobufCMessage *const *)p);
	else if (f->type == PROTOBUF_C_TYPE_BYTES)
		read_bytes(a, bytes->data, bytes->len);
}

static void walk(const struct arena *a, const ProtobufCMessage *m)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		char *values;
		size_t n = field_values(f, m, &values);

		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			read_bytes(a, values, n * field_size(f));
		for (size_t k = 0; k < n; k++)
			read_value(a, f, values + k * field_size(f));
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
