/* SPDX-License-Identifier: MIT
 *
 * A reader that writes rubbish into its page and the group's, and does nothing else: each word that
 * the others decide by gets values that no reader writes. It wakes nobody; a producer or a member
 * that sleeps looks again after a nap.
 */
#include "tests/model/streams/actors.h"

#include <string.h>

static uint32_t bad_reader(void)
{
	uint32_t i = 0;

	while (i < READERS && !plan->reader[i].bad)
		i++;
	return i;
}

bool rubbish_can_be_written(uint32_t i)
{
	enum rubbish kind = 1u << i / SLOTS_MAX;
	bool of_frame = kind & (RUBBISH_OWNER | RUBBISH_REDO);

	if (i % SLOTS_MAX < plan->slots && of_frame && head()->slot[i % SLOTS_MAX].seq == 0)
		return false;
	return world.scribbles < plan->scribbles && i % SLOTS_MAX < plan->slots &&
	       plan->rubbish & 1u << i / SLOTS_MAX;
}

static void write_to_group(enum rubbish kind, uint32_t slot)
{
	struct stream_group_page *g = group();
	uint64_t seq = head()->slot[slot].seq;

	switch (kind) {
	case RUBBISH_NO_NEXT:
		g->next = 0;
		break;
	case RUBBISH_OLD_NEXT:
		g->next = head()->newest - 7;
		break;
	case RUBBISH_NEW_NEXT:
		g->next = head()->newest + 7;
		break;
	case RUBBISH_OWNER:
		g->owner[slot] = stream_owner(seq, bad_reader());
		break;
	case RUBBISH_REDO:
		g->owner[slot] = stream_owner(seq, STREAM_REDO);
		break;
	default:
		g->redos += 7;
	}
}

static void write_to_page(enum rubbish kind, uint32_t slot)
{
	struct stream_reader_page *page = page_of(bad_reader(), 0);
	struct stream_claim *c = &page->claims[slot];

	switch (kind) {
	case RUBBISH_NONE:
		c->claim = 0;
		break;
	case RUBBISH_CLAIMED:
		c->claim = stream_claim_word(1, STREAM_CLAIMED);
		break;
	case RUBBISH_RELEASING:
		c->claim = stream_claim_word(1, STREAM_RELEASING);
		break;
	case RUBBISH_TICKET:
		c->claim = stream_claim_word(STREAM_TICKETS + 1, STREAM_RELEASING);
		break;
	case RUBBISH_RELEASED:
		c->released = 0;
		break;
	default:
		page->cursor = head()->newest + 7;
	}
}

void rubbish_write(uint32_t i)
{
	enum rubbish kind = 1u << i / SLOTS_MAX;

	if (kind & RUBBISH_OF_GROUP)
		write_to_group(kind, i % SLOTS_MAX);
	else
		write_to_page(kind, i % SLOTS_MAX);
	world.scribbles++;
	world.producer.missed = true;
	machine_say("writes rubbish");
}

bool rubbish_in_group(void)
{
	return plan->rubbish & RUBBISH_OF_GROUP && world.scribbles > 0;
}

bool rubbish_ends_nap(enum thread_id id)
{
	static struct memory before;
	bool found;

	if (!rubbish_in_group() || world.thread[id].block != BLOCK_FUTEX || world.thread[id].dead)
		return false;
	before = world.m;
	machine_at_once(true);
	found = id == PRODUCER ? producer_could_go_on() : reader_could_go_on(id - READER);
	found |= memcmp(&before, &world.m, sizeof(before)) != 0;
	machine_at_once(false);
	world.m = before;
	return found;
}
