/* SPDX-License-Identifier: MIT
 *
 * What the board says of buffers. It is written after the journal and before the answer: a daemon
 * that dies in between has a successor that finds the buffer as the journal tells it, and says
 * that.
 */
#include "daemon/catalog/catalog.h"

static uint32_t flags_of(const struct buffer *b)
{
	return (b->state == BUFFER_SEALED ? STATUS_PAGE_SEALED : 0) |
	       (b->state == BUFFER_SHARED ? STATUS_PAGE_SHARED : 0) |
	       (b->dirty ? STATUS_PAGE_DIRTY : 0) | (b->key ? 0 : STATUS_PAGE_UNLINKED);
}

void catalog_notice(struct catalog *c, const struct buffer *b)
{
	if (c->page)
		status_page_write(c->page, b->cell, flags_of(b));
}

uint32_t catalog_status_word(const struct catalog *c, const struct buffer *b)
{
	return c->page && b->cell != STATUS_PAGE_NONE
		       ? status_page_read(&c->page->map->cells[b->cell], b->id)
		       : flags_of(b);
}

/* A slot whose buffer did not come back was of one that was being filled, or that is lost: whoever
 * still looks there is told. */
void catalog_adopt_page(struct catalog *c)
{
	struct buffer *b;
	uint32_t used = status_page_used(c->page);

	for (uint32_t slot = 0; slot < used; slot++) {
		b = catalog_by_id(c, status_page_id(c->page, slot));
		if (b && b->cell == STATUS_PAGE_NONE)
			b->cell = slot;
		else
			status_page_give(c->page, slot);
	}
	list_foreach (b, &c->buffers, all_link) {
		if (b->cell == STATUS_PAGE_NONE)
			b->cell = status_page_take(c->page, b->id);
		catalog_notice(c, b);
	}
	status_page_begin(c->page);
}
