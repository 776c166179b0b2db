/* SPDX-License-Identifier: MIT
 *
 * From what the daemon says of an item to events: each flag that is not as it was is one. Words are
 * compared with what was told last, so that nothing is told twice, and nothing that lasts is
 * missed, whatever happened to the connection in between.
 */
#include "client/buffer/watch.h"

#include "client/base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PUBLISHED (STATUS_PAGE_SEALED | STATUS_PAGE_SHARED)

/* In a request: what it has itself, and what an item has beside a name, where all of its numbers
 * are large. */
#define REQUEST_BYTES 64u
#define ITEM_BYTES 24u

static size_t item_bytes(const struct watch_item *item)
{
	return ITEM_BYTES + (item->by_id ? 0 : strlen(item->name));
}

/* All that is watched is asked for in one request. */
static bool has_room(const struct gpushm_watch *w, const struct watch_item *item)
{
	size_t bytes = REQUEST_BYTES + item_bytes(item);

	for (size_t i = 0; i < w->n_items; i++)
		bytes += w->items[i].gone ? 0 : item_bytes(&w->items[i]);
	return bytes <= FRAME_MAX;
}

int watch_add(struct gpushm_watch *w, const struct watch_item *item)
{
	struct watch_item *at = w->items, *end = w->items + w->n_items;

	if (!has_room(w, item))
		return error_set(ENOSPC,
				 "the names of a watch fit one request, of %u bytes: make "
				 "another watch",
				 FRAME_MAX);
	/* Where one has gone there is room. Its place is in no request that is under way: this one
	 * is asked anew. */
	while (at < end && !at->gone)
		at++;
	if (at == end && w->n_items == WATCHED_MAX)
		return error_set(ENOSPC,
				 "a watch is of %u names and buffers at most: make another one",
				 WATCHED_MAX);
	if (at == end) {
		at = reallocarray(w->items, w->n_items + 1, sizeof(*at));
		if (!at)
			return error_set(ENOMEM, "out of memory for a watch");
		w->items = at;
		at += w->n_items++;
	}
	*at = *item;
	w->changed = true;
	return 0;
}

/* ---- the queue ---- */

/* Room for n more, so that several are told together or not at all. */
static int make_room(struct gpushm_watch *w, size_t n)
{
	size_t left = w->n_events - w->first_event;
	struct gpushm_event *wider;

	if (w->first_event > 0)
		memmove(w->events, w->events + w->first_event, left * sizeof(*w->events));
	w->n_events = left;
	w->first_event = 0;
	wider = reallocarray(w->events, left + n, sizeof(*wider));
	if (!wider)
		return error_set(ENOMEM, "out of memory for a watch's events");
	w->events = wider;
	return 0;
}

static void push(struct gpushm_watch *w, enum gpushm_event_kind what, uint64_t buffer,
		 const char *name)
{
	struct gpushm_event *e = &w->events[w->n_events++];

	*e = (struct gpushm_event){ .what = what, .buffer = buffer };
	memcpy(e->name, name, strlen(name) + 1);
}

bool watch_pop(struct gpushm_watch *w, struct gpushm_event *ret)
{
	if (w->first_event == w->n_events)
		return false;
	*ret = w->events[w->first_event++];
	return true;
}

int watch_tell_restart(struct gpushm_watch *w)
{
	int r = make_room(w, 1);

	if (r == 0)
		push(w, GPUSHM_EVENT_RESTARTED, 0, "");
	return r;
}

/* ---- differences ---- */

static void tell_flags(struct gpushm_watch *w, const struct watch_item *item, uint32_t before,
		       uint32_t now)
{
	if (!(before & PUBLISHED) && (now & PUBLISHED))
		push(w, GPUSHM_EVENT_PUBLISHED, item->buffer, item->name);
	if (!(before & STATUS_PAGE_DIRTY) && (now & STATUS_PAGE_DIRTY))
		push(w, GPUSHM_EVENT_DIRTY, item->buffer, item->name);
	if ((before & STATUS_PAGE_DIRTY) && !(now & (STATUS_PAGE_DIRTY | STATUS_PAGE_GONE)))
		push(w, GPUSHM_EVENT_CLEAN, item->buffer, item->name);
	if (!(before & STATUS_PAGE_UNLINKED) && (now & STATUS_PAGE_UNLINKED))
		push(w, GPUSHM_EVENT_UNLINKED, item->buffer, item->name);
	if (now & STATUS_PAGE_GONE)
		push(w, GPUSHM_EVENT_GONE, item->buffer, item->name);
}

int watch_take(struct gpushm_watch *w, struct watch_item *item, uint64_t buffer, uint32_t word)
{
	uint32_t before = item->word;
	int r = make_room(w, 6);

	if (r < 0)
		return r;
	if (item->by_id) {
		tell_flags(w, item, before, word);
		item->gone = word & STATUS_PAGE_GONE;
	} else {
		if (buffer != item->buffer && item->buffer)
			push(w, GPUSHM_EVENT_UNLINKED, item->buffer, item->name);
		if (buffer != item->buffer)
			before = 0;
		item->buffer = buffer;
		tell_flags(w, item, before, word);
	}
	item->word = word;
	return 0;
}
