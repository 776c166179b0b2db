/* SPDX-License-Identifier: MIT
 *
 * Two stacks of free numbers. They have room for all of them from the start, so that giving one
 * back never fails; the kernel gives memory for as much of it as was ever used.
 */
#include "daemon/state/fd_index.h"

#include <errno.h>
#include <stdlib.h>

int fd_index_init(struct fd_index *s)
{
	uint32_t *memory = calloc(FD_INDEX_MAX, sizeof(*memory));

	*s = (struct fd_index){ .memory = memory };
	if (!memory)
		return -ENOMEM;
	s->kept = (struct slot_range){ .free = memory, .end = FD_INDEX_KEPT };
	s->rest = (struct slot_range){ .free = memory + FD_INDEX_KEPT,
				       .first = FD_INDEX_KEPT,
				       .next = FD_INDEX_KEPT,
				       .end = FD_INDEX_MAX };
	return 0;
}

void fd_index_done(struct fd_index *s)
{
	free(s->memory);
	*s = (struct fd_index){ 0 };
}

static struct slot_range *range_of(struct fd_index *s, uint32_t slot)
{
	return slot < FD_INDEX_KEPT ? &s->kept : &s->rest;
}

void fd_index_mark(struct fd_index *s, uint32_t slot)
{
	struct slot_range *r = range_of(s, slot);

	if (slot >= r->end)
		return;
	r->free[slot - r->first] = FD_INDEX_NONE;
	if (slot >= r->next)
		r->next = slot + 1;
}

/* While slots are marked the stack is a map: what is below `next` and not marked, is free. */
static void settle(struct slot_range *r)
{
	r->n_free = 0;
	for (uint32_t slot = r->first; slot < r->next; slot++)
		if (r->free[slot - r->first] != FD_INDEX_NONE)
			r->free[r->n_free++] = slot;
}

void fd_index_settle(struct fd_index *s)
{
	settle(&s->kept);
	settle(&s->rest);
}

static uint32_t take(struct slot_range *r)
{
	if (r->n_free)
		return r->free[--r->n_free];
	return r->next < r->end ? r->next++ : FD_INDEX_NONE;
}

uint32_t fd_index_take(struct fd_index *s)
{
	uint32_t slot = take(&s->kept);

	return slot == FD_INDEX_NONE ? take(&s->rest) : slot;
}

void fd_index_give(struct fd_index *s, uint32_t slot)
{
	struct slot_range *r = range_of(s, slot);

	if (slot != FD_INDEX_NONE)
		r->free[r->n_free++] = slot;
}
