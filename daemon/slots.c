/* SPDX-License-Identifier: MIT
 *
 * A stack of free numbers. It has room for all of them from the start, so that giving one back
 * never fails.
 */
#include "daemon/slots.h"

#include <errno.h>
#include <stdlib.h>

int slots_init(struct slots *s)
{
	*s = (struct slots){ .free = calloc(SLOTS_MAX, sizeof(*s->free)) };
	return s->free ? 0 : -ENOMEM;
}

void slots_done(struct slots *s)
{
	free(s->free);
	*s = (struct slots){ 0 };
}

void slots_mark(struct slots *s, uint32_t slot)
{
	if (slot >= SLOTS_MAX)
		return;
	s->free[slot] = SLOT_NONE;
	if (slot >= s->next)
		s->next = slot + 1;
}

/* While slots are marked the stack is a map: what is below `next` and not marked, is free. */
void slots_settle(struct slots *s)
{
	s->n_free = 0;
	for (uint32_t slot = 0; slot < s->next; slot++)
		if (s->free[slot] != SLOT_NONE)
			s->free[s->n_free++] = slot;
}

uint32_t slots_take(struct slots *s)
{
	if (s->n_free)
		return s->free[--s->n_free];
	return s->next < SLOTS_MAX ? s->next++ : SLOT_NONE;
}

void slots_give(struct slots *s, uint32_t slot)
{
	if (slot != SLOT_NONE)
		s->free[s->n_free++] = slot;
}
