/* SPDX-License-Identifier: MIT
 *
 * A message is unpacked into an arena, one field in it is changed, and it is packed again. Values
 * come from small tables: names of the target's pools and buffers, numbers at which rules change.
 * If the arena is used up, the mutation ends early and the message is packed as it is.
 */
#include "tests/fuzz/mutate.h"

#include "proto/base/arena.h"
#include "proto/base/own.h"
#include "proto/limits.h"
#include "tests/fuzz/fields.h"

#include <stdbool.h>
#include <string.h>

#define MESSAGES_MAX 64u
#define ELEMENTS_MAX 80u /* one more than any repeated field may have */
#define BYTES_MAX 300u	 /* of a field: more than a name may have */

static struct arena arena;

uint32_t dice_roll(struct dice *d, uint32_t n)
{
	/* xorshift64 (G. Marsaglia, 2003); its state must not be 0. */
	d->state = d->state ? d->state : 88172645463325252u;
	d->state ^= d->state << 13;
	d->state ^= d->state >> 7;
	d->state ^= d->state << 17;
	return (uint32_t)(d->state >> 32) % n;
}

static void *grab(size_t bytes)
{
	void *p = arena.allocator.alloc(arena.allocator.allocator_data, bytes ? bytes : 1);

	if (p)
		memset(p, 0, bytes);
	return p;
}

/* ---- values ---- */

static uint64_t random_number(struct dice *d)
{
	static const uint64_t edges[] = {
		0,    1,    2,	  3,	4,	 5,	  6,	     7,		8,
		10,   16,   17,	  31,	32,	 33,	  63,	     64,	65,
		128,  255,  256,  400,	416,	 438,	  511,	     1000,	2000,
		4095, 4096, 4097, 8192, 65535,	 65536,	  1u << 20,  INT32_MAX, UINT32_MAX,
		-8,   -4,   -1,	  -256, -131072, 1 << 30, INT64_MAX, INT64_MIN, INT64_MAX - 1,
	};

	return edges[dice_roll(d, array_size(edges))];
}

static void random_bytes(struct dice *d, ProtobufCBinaryData *ret)
{
	static const char *const words[] = {
		"",	      "a",     "b",    "m/llama", "~/a",    "~1000/a", "~2000/b",
		"host",	      "small", "gpu0", "nosuch",  "tall",   ".",       "a//b",
		"a\xff",      "\1",    "w1",   "w2",	  "layer/", "note",    "[('x', '<f4')]",
		"fuzz 0.1.0",
	};
	uint32_t choice = dice_roll(d, array_size(words) + 2);
	uint8_t *room = grab(BYTES_MAX);

	if (!room)
		return;
	if (choice < array_size(words)) {
		ret->len = strlen(words[choice]);
		memcpy(room, words[choice], ret->len);
	} else if (choice == array_size(words)) {
		ret->len = dice_roll(d, BYTES_MAX);
		memset(room, 'x', ret->len);
	} else {
		ret->len = ret->len < BYTES_MAX ? ret->len : BYTES_MAX;
		if (ret->len > 0)
			memcpy(room, ret->data, ret->len);
		ret->len = LLVMFuzzerMutate(room, ret->len, BYTES_MAX);
	}
	ret->data = room;
}

static ProtobufCMessage *new_message(const ProtobufCMessageDescriptor *type)
{
	ProtobufCMessage *m = grab(type->sizeof_message);

	if (m)
		protobuf_c_message_init(type, m);
	return m;
}

/* Without memory for a message the field stays NULL, which packs as absent. */
static void set_value(struct dice *d, const ProtobufCFieldDescriptor *f, char *p)
{
	uint64_t n = random_number(d);

	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		*(ProtobufCMessage **)p = new_message(f->descriptor);
	else if (f->type == PROTOBUF_C_TYPE_BYTES)
		random_bytes(d, (ProtobufCBinaryData *)p);
	else if (f->type == PROTOBUF_C_TYPE_BOOL)
		*(protobuf_c_boolean *)p = dice_roll(d, 2) != 0;
	else
		memcpy(p, &n, field_size(f)); /* little endian: the low part */
}

/* ---- fields ---- */

/* Adds an element, drops the last one, or changes one. */
static void change_repeated(struct dice *d, const ProtobufCFieldDescriptor *f, char *m)
{
	size_t *n = (size_t *)(m + f->quantifier_offset), size = field_size(f);
	char **elements = (char **)(m + f->offset), *more;
	uint32_t choice = dice_roll(d, 4);

	if (choice == 0 && *n > 0) {
		--*n;
	} else if (choice == 1 && *n > 0) {
		if (f->type != PROTOBUF_C_TYPE_MESSAGE)
			set_value(d, f, *elements + dice_roll(d, (uint32_t)*n) * size);
	} else if (*n < ELEMENTS_MAX) {
		more = grab((*n + 1) * size);
		if (!more)
			return;
		if (*n > 0)
			memcpy(more, *elements, *n * size);
		set_value(d, f, more + *n * size);
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && !*(void **)(more + *n * size))
			return;
		*elements = more;
		++*n;
	}
}

static void change_field(struct dice *d, const ProtobufCFieldDescriptor *f, char *m)
{
	bool drop = dice_roll(d, 6) == 0;

	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		change_repeated(d, f, m);
	} else if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
		set_value(d, f, m + f->offset);
		*(uint32_t *)(m + f->quantifier_offset) = *(void **)(m + f->offset) ? f->id : 0;
	} else if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
		*(ProtobufCMessage **)(m + f->offset) = drop ? NULL : new_message(f->descriptor);
	} else {
		*(protobuf_c_boolean *)(m + f->quantifier_offset) = !drop;
		set_value(d, f, m + f->offset);
	}
}

/* ---- messages ---- */

struct tree {
	ProtobufCMessage *messages[MESSAGES_MAX];
	uint32_t n;
};

static void gather(struct tree *t, ProtobufCMessage *m);

static void gather_field(struct tree *t, const ProtobufCFieldDescriptor *f, ProtobufCMessage *m)
{
	char *values;
	size_t n = field_values(f, m, &values);

	if (f->type != PROTOBUF_C_TYPE_MESSAGE)
		return;
	for (size_t i = 0; i < n; i++)
		if (((ProtobufCMessage **)values)[i])
			gather(t, ((ProtobufCMessage **)values)[i]);
}

static void gather(struct tree *t, ProtobufCMessage *m)
{
	if (t->n == MESSAGES_MAX)
		return;
	t->messages[t->n++] = m;
	for (unsigned i = 0; i < m->descriptor->n_fields; i++)
		gather_field(t, &m->descriptor->fields[i], m);
}

/* Inner fields are changed more often than the outermost one, whose change drops all the rest. */
static void change(struct dice *d, ProtobufCMessage *whole)
{
	struct tree t = { .n = 0 };
	ProtobufCMessage *m;
	uint32_t at;

	gather(&t, whole);
	at = dice_roll(d, t.n);
	if (at == 0 && t.n > 1 && dice_roll(d, 4) > 0)
		at = 1 + dice_roll(d, t.n - 1);
	m = t.messages[at];
	if (m->descriptor->n_fields > 0)
		change_field(d, &m->descriptor->fields[dice_roll(d, m->descriptor->n_fields)],
			     (char *)m);
}

size_t mutate_message(struct dice *d, const ProtobufCMessageDescriptor *type, uint8_t *data,
		      size_t size, size_t max)
{
	ProtobufCMessage *m;
	size_t packed;

	if (!arena.memory && arena_init(&arena, UNPACK_MAX) < 0)
		abort();
	arena_reset(&arena);
	m = protobuf_c_message_unpack(type, &arena.allocator, size, data);
	if (!m)
		return 0;
	for (uint32_t n = 1 + dice_roll(d, 4); n > 0; n--)
		change(d, m);
	packed = protobuf_c_message_get_packed_size(m);
	return packed > max ? 0 : protobuf_c_message_pack(m, data);
}
