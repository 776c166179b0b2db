/* SPDX-License-Identifier: MIT
 *
 * The words by their addresses, and states as bytes.
 */
#include "tests/model/streams/world.h"

#include <string.h>

struct world world;
struct follower world_followers[READERS];
struct queue world_queues[PROCESSES];
uint64_t logs[THREADS][LOG_MAX];
uint8_t log_futex[THREADS][LOG_MAX];
const struct plan *plan;

/* ---- the words ---- */

static enum word word_of_head(size_t at)
{
	switch (at) {
	case offsetof(struct stream_head, active):
		return WORD_ACTIVE;
	case offsetof(struct stream_head, every):
		return WORD_EVERY;
	case offsetof(struct stream_head, sharing):
		return WORD_SHARING;
	case offsetof(struct stream_head, leaving):
		return WORD_LEAVING;
	case offsetof(struct stream_head, group_open):
		return WORD_GROUP_OPEN;
	case offsetof(struct stream_head, state):
		return WORD_STATE;
	case offsetof(struct stream_head, newest):
		return WORD_NEWEST;
	case offsetof(struct stream_head, wake):
		return WORD_WAKE;
	case offsetof(struct stream_head, asleep):
		return WORD_HEAD_ASLEEP;
	default:
		return WORD_PEOPLE;
	}
}

static enum word word_of_seat(size_t at)
{
	at %= sizeof(struct stream_seat);
	return at == offsetof(struct stream_seat, state) ||
			       at == offsetof(struct stream_seat, generation)
		       ? WORD_SEAT
		       : WORD_PEOPLE;
}

static enum word word_of_slot(size_t at)
{
	switch (at % sizeof(struct stream_slot)) {
	case offsetof(struct stream_slot, ready):
		return WORD_READY;
	case offsetof(struct stream_slot, seq):
		return WORD_SEQ;
	case offsetof(struct stream_slot, broken):
	case offsetof(struct stream_slot, broken_span):
		return WORD_BROKEN;
	case offsetof(struct stream_slot, taking):
		return WORD_TAKING;
	case offsetof(struct stream_slot, begun_ns):
	case offsetof(struct stream_slot, waits):
		return WORD_WAITS;
	default:
		return WORD_PEOPLE;
	}
}

static enum word word_in_head(size_t at, uint32_t *ret_index)
{
	size_t seats = offsetof(struct stream_head, seats), slots = sizeof(struct stream_head);
	size_t order = slots + plan->slots * sizeof(struct stream_slot);

	*ret_index = 0;
	if (at < seats)
		return word_of_head(at);
	*ret_index = (uint32_t)((at - seats) / sizeof(struct stream_seat));
	if (at < slots)
		return word_of_seat(at - seats);
	*ret_index = (uint32_t)((at - slots) / sizeof(struct stream_slot));
	if (at < order)
		return word_of_slot(at - slots);
	*ret_index = (uint32_t)((at - order) / sizeof(uint32_t));
	return *ret_index < stream_order_size(plan->slots) ? WORD_ORDER : WORD_WAITS;
}

static enum word word_in_page(size_t at, uint32_t *ret_index)
{
	size_t claims = sizeof(struct stream_reader_page);

	if (at >= claims) {
		*ret_index = (uint32_t)((at - claims) / sizeof(struct stream_claim));
		return (at - claims) % sizeof(struct stream_claim) ? WORD_RELEASED : WORD_CLAIM;
	}
	*ret_index = 0;
	switch (at) {
	case offsetof(struct stream_reader_page, cursor):
		return WORD_CURSOR;
	case offsetof(struct stream_reader_page, asleep):
		return WORD_PAGE_ASLEEP;
	case offsetof(struct stream_reader_page, released_count):
		return WORD_RELEASED_COUNT;
	default:
		return WORD_PEOPLE;
	}
}

static enum word word_in_group(size_t at, uint32_t *ret_index)
{
	*ret_index = 0;
	if (at == offsetof(struct stream_group_page, next))
		return WORD_NEXT;
	if (at == offsetof(struct stream_group_page, redos))
		return WORD_REDOS;
	if (at < sizeof(struct stream_group_page))
		return WORD_PEOPLE;
	*ret_index = (uint32_t)((at - sizeof(struct stream_group_page)) / sizeof(uint64_t));
	return WORD_OWNER;
}

enum word word_of(const void *address, uint32_t *ret_index)
{
	const unsigned char *a = address, *m = (const unsigned char *)&world.m;
	size_t at = (size_t)(a - m);

	if (a < m || at >= sizeof(world.m))
		return WORD_PRIVATE;
	if (at < offsetof(struct memory, group))
		return word_in_head(at, ret_index);
	if (at < offsetof(struct memory, page))
		return word_in_group(at - offsetof(struct memory, group), ret_index);
	return word_in_page((at - offsetof(struct memory, page)) % sizeof(world.m.page[0][0]),
			    ret_index);
}

const char *word_name(enum word w)
{
	static const char *const names[WORDS] = {
		[WORD_PEOPLE] = "(counts)",
		[WORD_ACTIVE] = "active",
		[WORD_EVERY] = "every",
		[WORD_SHARING] = "sharing",
		[WORD_LEAVING] = "leaving",
		[WORD_GROUP_OPEN] = "group_open",
		[WORD_STATE] = "state",
		[WORD_NEWEST] = "newest",
		[WORD_WAKE] = "wake",
		[WORD_HEAD_ASLEEP] = "head.asleep",
		[WORD_SEAT] = "seat",
		[WORD_READY] = "ready",
		[WORD_SEQ] = "seq",
		[WORD_BROKEN] = "broken",
		[WORD_TAKING] = "taking",
		[WORD_WAITS] = "waits",
		[WORD_ORDER] = "order",
		[WORD_CURSOR] = "cursor",
		[WORD_PAGE_ASLEEP] = "page.asleep",
		[WORD_RELEASED_COUNT] = "released_count",
		[WORD_CLAIM] = "claim",
		[WORD_RELEASED] = "released",
		[WORD_NEXT] = "next",
		[WORD_REDOS] = "redos",
		[WORD_OWNER] = "owner",
	};

	return names[w];
}

/* ---- states ---- */

static unsigned char *cursor;
static bool saving;

static void piece(void *at, size_t bytes)
{
	memcpy(saving ? (void *)cursor : at, saving ? at : (void *)cursor, bytes);
	cursor += bytes;
}

/* What is not in use is left out. */
static void pieces(void)
{
	size_t seats = offsetof(struct stream_head, seats) + READERS * sizeof(struct stream_seat);
	unsigned char *h = world.m.head;

	piece(h, seats);
	piece(h + sizeof(struct stream_head), sizeof(world.m.head) - sizeof(struct stream_head));
	piece(world.m.group, sizeof(world.m.group));
	piece(&world.thread, sizeof(world) - offsetof(struct world, thread));
	for (uint32_t i = 0; i < READERS; i++) {
		if (plan->reader[i].follow != 0)
			piece(&world_followers[i], sizeof(world_followers[i]));
		for (uint32_t p = 0; p < world_followers[i].joins; p++)
			piece(world.m.page[i][p], sizeof(world.m.page[i][p]));
	}
	for (int i = 0; i < PROCESSES; i++) {
		piece(&world_queues[i].n, sizeof(world_queues[i].n));
		piece(world_queues[i].op, world_queues[i].n * sizeof(world_queues[i].op[0]));
	}
	for (int i = 0; i < THREADS; i++) {
		piece(logs[i], world.thread[i].n_log * sizeof(uint64_t));
		piece(log_futex[i], world.thread[i].n_log);
	}
}

size_t state_save(unsigned char *ret)
{
	cursor = ret;
	saving = true;
	pieces();
	return (size_t)(cursor - ret);
}

void state_restore(unsigned char *from)
{
	cursor = from;
	saving = false;
	pieces();
}
