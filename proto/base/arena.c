/* SPDX-License-Identifier: MIT
 *
 * The memory of one unpacked message. An arena owns one block, gives out pieces of it from front to
 * back, and takes them back all at once. It never grows: a message that needs more fails to unpack,
 * which limits the memory of a hostile frame.
 *
 * protobuf-c (1.4.1, protobuf-c.c: protobuf_c_message_unpack) allocates its lists of scanned fields
 * here, too, so that they are inside the budget.
 */
#include "proto/base/arena.h"

#include "proto/base/own.h"

/* The largest alignment in a protobuf-c message: pointers, size_t, uint64_t and double. */
#define ARENA_ALIGN 8u

static void *arena_alloc(void *data, size_t size)
{
	struct arena *a = data;
	void *piece = a->memory + a->used;

	if (size > a->size - a->used)
		return NULL;

	/* A multiple of ARENA_ALIGN, as a->size is one: the sum stays within it. */
	a->used += (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
	return piece;
}

static void arena_free(void *data, void *piece)
{
}

int arena_init(struct arena *a, size_t bytes)
{
	size_t size = bytes / ARENA_ALIGN * ARENA_ALIGN;

	*a = (struct arena){
		.allocator = { .alloc = arena_alloc, .free = arena_free, .allocator_data = a },
		.memory = malloc(size > 0 ? size : 1),
	};
	if (!a->memory)
		return -ENOMEM;

	a->size = size;
	return 0;
}

void arena_done(struct arena *a)
{
	free_ptr(&a->memory);
	a->used = a->size = 0;
}

void arena_reset(struct arena *a)
{
	a->used = 0;
}
