/* SPDX-License-Identifier: MIT
 *
 * A reader that writes rubbish into its page, and does nothing else: each word that the producer or
 * the daemon decides by gets values that no reader writes. It wakes nobody; a producer that sleeps
 * looks again after a nap.
 */
#include "tests/model/streams/actors.h"

static uint32_t bad_reader(void)
{
	uint32_t i = 0;

	while (i < READERS && !plan->reader[i].bad)
		i++;
	return i;
}

bool rubbish_can_be_written(uint32_t i)
{
	return world.scribbles < plan->scribbles && i % SLOTS_MAX < plan->slots &&
	       plan->rubbish & 1u << i / SLOTS_MAX;
}

void rubbish_write(uint32_t i)
{
	struct stream_reader_page *page = page_of(bad_reader(), 0);
	struct stream_claim *c = &page->claims[i % SLOTS_MAX];

	switch (1u << i / SLOTS_MAX) {
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
	world.scribbles++;
	world.producer.missed = true;
	machine_say("writes rubbish");
}
