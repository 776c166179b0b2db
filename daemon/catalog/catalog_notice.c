/* SPDX-License-Identifier: MIT
 *
 * What the board says of buffers. It is written after the journal and before the answer: a daemon
 * that dies in between has a successor that finds the buffer as the journal tells it, and says
 * that.
 */
#include "daemon/catalog/catalog.h"

static uint32_t flags_of(const struct buffer *b)
{
	return (b->state == BUFFER_SEALED ? BOARD_SEALED : 0) |
	       (b->state == BUFFER_SHARED ? BOARD_SHARED : 0) | (b->dirty ? BOARD_DIRTY : 0) |
	       (b->key ? 0 : BOARD_UNLINKED);
}

void catalog_notice(struct catalog *c, const struct buffer *b)
{
	if (c->board)
		board_write(c->board, b->notice, flags_of(b));
}

uint32_t catalog_word(const struct catalog *c, const struct buffer *b)
{
	return c->board && b->notice != BOARD_NONE
		       ? board_read(&c->board->map->slots[b->notice], b->id)
		       : flags_of(b);
}

/* A slot whose buffer did not come back was of one that was being filled, or that is lost: whoever
 * still looks there is told. */
void catalog_take_board(struct catalog *c)
{
	struct buffer *b;
	uint32_t used = board_used(c->board);

	for (uint32_t slot = 0; slot < used; slot++) {
		b = catalog_by_id(c, board_id(c->board, slot));
		if (b && b->notice == BOARD_NONE)
			b->notice = slot;
		else
			board_give(c->board, slot);
	}
	list_foreach (b, &c->buffers, all_link) {
		if (b->notice == BOARD_NONE)
			b->notice = board_take(c->board, b->id);
		catalog_notice(c, b);
	}
	board_begin(c->board);
}
