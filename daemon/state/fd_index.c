/* SPDX-License-Identifier: MIT
 *
 * Two stacks of free numbers. They have room for all of them from the start, so that giving one
 * back never fails; the kernel gives memory for as much of it as was ever used.
 */
#include "daemon/state/fd_index.h"

#include <errno.h>
#include <stdlib.h>

int slots_init(struct slots *s)
{
	uint32_t *memory = calloc(SLOTS_MAX, sizeof(*memory));

	*s = (struct slots){ .memory = memory };
	if (!memory)
		return -ENOMEM;
	s->kept = (struct slot_range){ .free = memory, .end = SLOTS_KEPT };
	s->rest = (struct slot_range){ .free = memory + SLOTS_KEPT,
				       .first = SLOTS_KEPT,
				       .next = SLOTS_KEPT,
				       .end = SLOTS_MAX };
	return 0;
}

void slots_done(struct slots *s)
{
	free(s->memory);
	*s = (struct slots){ 0 };
}

static struct slot_range *range_of(struct slots *s, uint32_t slot)
{
	return slot < SLOTS_KEPT ? &s->kept : &s->rest;
}

void slots_mark(struct slots *s, uint32_t slot)
{
	struct slot_range *r = range_of(s, slot);

	if (slot >= r->end)
		return;
	r->free[slot - r->first] = SLOT_NONE;
	if (slot >= r->next)
		r->next = slot + 1;
}

/* While slots are marked the stack is a map: what is below `next` and not marked, is free. */
static void settle(struct slot_range *r)
{
	r->n_free = 0;
	for (uint32_t slot = r->first; slot < r->next; slot++)
		if (r->free[slot - r->first] != SLOT_NONE)
			r->free[r->n_free++] = slot;
}

void slots_settle(struct slots *s)
{
	settle(&s->kept);
	settle(&s->rest);
}

static uint32_t take(struct slot_range *r)
{
	if (r->n_free)
		return r->free[--r->n_free];
	return r->next < r->end ? r->next++ : SLOT_NONE;
}

uint32_t slots_take(struct slots *s)
{
	uint32_t slot = take(&s->kept);

	return slot == SLOT_NONE ? take(&s->rest) : slot;
}

void slots_give(struct slots *s, uint32_t slot)
{
	struct slot_range *r = range_of(s, slot);

	if (slot != SLOT_NONE)
		r->free[r->n_free++] = slot;
}
