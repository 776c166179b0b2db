/* SPDX-License-Identifier: MIT
 *
 * Memory is taken in blocks. What is handed out is the start of the first block of the list, so
 * that gpushm_free() finds the others.
 */
#include "client/lib/base/result.h"

#include "client/gpushm.h"
#include "client/lib/base/error.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4000u /* and the block's own, and malloc()'s */

struct result_block {
	struct result_block *next;
	size_t used, size; /* of bytes */
	alignas(max_align_t) unsigned char bytes[];
};

static void free_blocks(struct result_block *b)
{
	while (b) {
		struct result_block *next = b->next;

		free(b);
		b = next;
	}
}

void result_done(struct result *r)
{
	free_blocks(take_ptr(r->blocks));
	free_ptr(&r->items);
	r->n = 0;
}

static struct result_block *new_block(size_t bytes)
{
	struct result_block *b = calloc(1, sizeof(*b) + bytes);

	if (b)
		b->size = bytes;
	else
		error_set_text(ENOMEM, "out of memory for the daemon's answer");
	return b;
}

/* The first block stays the first; the newest is the next one. */
static struct result_block *add_block(struct result *r, size_t bytes)
{
	struct result_block *first = r->blocks, *b;

	b = new_block(bytes < BLOCK_BYTES ? BLOCK_BYTES : bytes);
	if (b && first) {
		b->next = first->next;
		first->next = b;
	} else {
		r->blocks = b ? b : first;
	}
	return b;
}

void *result_alloc(struct result *r, size_t bytes)
{
	size_t rounded = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	struct result_block *b = r->blocks && r->blocks->next ? r->blocks->next : r->blocks;

	if (!b || b->size - b->used < rounded)
		b = add_block(r, rounded);
	if (!b)
		return NULL;
	b->used += rounded;
	return b->bytes + b->used - rounded;
}

void *result_add(struct result *r, size_t bytes)
{
	void **grown = grow(r->items, r->n, sizeof(*grown)), *item;

	if (!grown) {
		error_set_text(ENOMEM, "out of memory for the daemon's answer");
		return NULL;
	}
	r->items = grown;
	item = result_alloc(r, bytes);
	if (item)
		r->items[r->n++] = item;
	return item;
}

int result_list(struct result *r, size_t *ret_n, void *ret)
{
	size_t bytes = r->n * sizeof(*r->items);
	struct result_block *list = new_block(bytes);

	if (!list)
		return -ENOMEM;
	if (bytes > 0)
		memcpy(list->bytes, r->items, bytes);
	list->next = take_ptr(r->blocks);
	*ret_n = r->n;
	*(void **)ret = list->bytes;
	result_done(r);
	return 0;
}

void *result_one(struct result *r)
{
	void *item = r->items[0];

	r->blocks = NULL;
	result_done(r);
	return item;
}

void *gpushm_free(void *result)
{
	if (result)
		free_blocks(container_of(result, struct result_block, bytes));
	return NULL;
}
