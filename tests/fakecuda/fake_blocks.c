/* SPDX-License-Identifier: MIT
 *
 * The sub-allocator of a pool: a list of blocks, free or in use. Free neighbours become one block.
 * It knows only offsets and touches no memory.
 */
#include "tests/fakecuda/fake_blocks.h"

struct block {
	struct list link; /* blocks::all */
	uint64_t offset, size;
	bool taken;
};

void blocks_init(struct blocks *b, uint64_t size)
{
	*b = (struct blocks){ .size = size };
	list_init(&b->all);
}

void blocks_done(struct blocks *b)
{
	struct block *it;

	list_foreach (it, &b->all, link)
		free(it);
	list_init(&b->all);
}

static struct block *block_new(struct list *before, uint64_t offset, uint64_t size)
{
	struct block *it = calloc(1, sizeof(*it));

	if (!it)
		return NULL;
	it->offset = offset;
	it->size = size;
	list_insert(before, &it->link);
	return it;
}

static struct block *first_fit(const struct blocks *b, uint64_t size)
{
	struct block *it;

	list_foreach (it, &b->all, link)
		if (!it->taken && it->size >= size)
			return it;
	return NULL;
}

int blocks_take(struct blocks *b, uint64_t size, uint64_t *ret_offset)
{
	struct block *it;

	if (list_empty(&b->all) && !block_new(&b->all, 0, b->size))
		return -ENOMEM;
	it = first_fit(b, size);
	if (!it)
		return -ENOMEM;
	if (it->size > size) {
		if (!block_new(it->link.next, it->offset + size, it->size - size))
			return -ENOMEM;
		it->size = size;
	}
	it->taken = true;
	b->used += size;
	*ret_offset = it->offset;
	return 0;
}

/* Makes `it` and a free neighbour before it one block. */
static void merge(struct block *before, struct block *it)
{
	it->offset = before->offset;
	it->size += before->size;
	list_drop(&before->link);
	free(before);
}

static struct block *block_at(const struct blocks *b, uint64_t offset)
{
	struct block *it;

	list_foreach (it, &b->all, link)
		if (it->offset == offset)
			return it;
	return NULL;
}

void blocks_give(struct blocks *b, uint64_t offset)
{
	struct block *it = block_at(b, offset), *next;

	it->taken = false;
	b->used -= it->size;

	next = container_of(it->link.next, struct block, link);
	if (it->link.next != &b->all && !next->taken) {
		merge(it, next);
		it = next;
	}
	if (it->link.prev != &b->all && !container_of(it->link.prev, struct block, link)->taken)
		merge(container_of(it->link.prev, struct block, link), it);
}

uint64_t blocks_end(const struct blocks *b)
{
	uint64_t end = 0;
	struct block *it;

	list_foreach (it, &b->all, link)
		if (it->taken)
			end = it->offset + it->size;
	return end;
}
