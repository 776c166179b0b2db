/* SPDX-License-Identifier: MIT
 *
 * The order of the stores matters in each function: tests/model/streams checks all of them against
 * the code of producers and readers, step by step.
 */
#include "daemon/catalog/stream_words.h"

#include "proto/stream_atomic.h"

void stream_words_init(const struct stream_words *w)
{
	const struct stream_shape *shape = &w->shape;
	struct stream_head *h = w->head;

	h->version = STREAM_VERSION;
	h->slots = shape->slots;
	h->order_size = stream_order_size(shape->slots);
	h->readers = shape->readers;
	h->delivery = shape->delivery;
	h->keep_queue = shape->keep_queue;
	h->slot_bytes = shape->slot_bytes;
	h->limit_ms = shape->limit_ms;
	stream_store(&h->state, STREAM_ORPHANED);
	h->magic = STREAM_HEAD_MAGIC;
	w->group->version = STREAM_VERSION;
	w->group->slots = shape->slots;
	stream_store(&w->group->next, 1);
	stream_store(&h->group_open, shape->keep_queue);
	w->group->magic = STREAM_GROUP_MAGIC;
}

void stream_words_init_reader(const struct stream_words *w, struct stream_reader_page *page)
{
	page->version = STREAM_VERSION;
	page->slots = w->shape.slots;
	page->magic = STREAM_READER_MAGIC;
}

/* ---- the producer ---- */

static void tell(const struct stream_words *w, enum stream_state state)
{
	stream_store(&w->head->asleep, 0);
	stream_store(&w->head->waited_ns, 0);
	stream_store(&w->head->state, state);
	stream_add(&w->head->wake, 1);
}

void stream_words_begin(const struct stream_words *w, uint32_t producers)
{
	stream_store(&w->head->producers, producers);
	tell(w, STREAM_RUNNING);
}

/* The slot's frames up to this one are not finished: a GPU may have queued several of them. */
static void break_frames(struct stream_slot *s, uint64_t last)
{
	uint64_t ready = stream_load(&s->ready), span = last - ready;

	if (stream_before(ready, last)) {
		stream_store(&s->broken_span, span < UINT32_MAX ? span : UINT32_MAX);
		stream_store(&s->broken, last);
	}
	stream_store(&s->ready, last);
}

/* What the producer left undone. A frame that it only began to take away is put back; one that is
 * not published yet is dropped, since nobody can have taken it, and its number is given again: so
 * the slot's ready word must not have that number. */
static void repair_slot(struct stream_slot *s, uint64_t newest)
{
	uint64_t seq = stream_load(&s->seq), taking = stream_load(&s->taking);

	if (seq == 0 && taking != 0) {
		seq = taking;
		stream_store(&s->seq, seq);
	}
	stream_store(&s->taking, 0);
	if (seq != 0 && stream_before(newest, seq)) {
		seq = 0;
		stream_store(&s->seq, 0);
	}
	break_frames(s, seq ? seq : newest);
	stream_store(&s->begun_ns, 0);
	stream_store(&s->waits, 0);
}

static void end_producer(const struct stream_words *w, enum stream_state state)
{
	uint64_t newest = stream_load(&w->head->newest);

	for (uint32_t i = 0; i < w->shape.slots; i++)
		repair_slot(&w->head->slot[i], newest);
	tell(w, state);
}

void stream_words_end(const struct stream_words *w)
{
	end_producer(w, STREAM_ENDED);
}

void stream_words_orphan(const struct stream_words *w)
{
	end_producer(w, STREAM_ORPHANED);
}

/* ---- joining ---- */

static void set_bit(_Atomic uint64_t *mask, uint32_t reader)
{
	stream_store(mask, stream_load(mask) | 1ull << reader);
}

static void clear_bit(_Atomic uint64_t *mask, uint32_t reader)
{
	stream_store(mask, stream_load(mask) & ~(1ull << reader));
}

static void fill_seat(struct stream_seat *s, const struct stream_join *join)
{
	stream_store(&s->generation, join->generation);
	stream_store(&s->follow, join->follow);
	stream_store(&s->max_held, join->max_held);
	stream_store(&s->pid, join->pid);
	stream_store(&s->joined_ns, join->now_ns);
	stream_store(&s->state, STREAM_SEAT_TAKEN);
}

/* The word says which frame is kept for the reader: the newest at first, which the producer never
 * takes away, and behind the bits, when the producer heeds it, the one that comes next. */
static void join_behind(const struct stream_words *w, uint32_t reader, _Atomic uint64_t *word,
			_Atomic uint64_t *mask)
{
	if (word)
		stream_store(word, stream_load(&w->head->newest));
	set_bit(mask, reader);
	set_bit(&w->head->active, reader);
	if (mask == &w->head->sharing)
		stream_store(&w->head->group_open, 1);
	if (word)
		stream_store(word, stream_next(stream_load(&w->head->newest)));
}

void stream_words_join(const struct stream_words *w, uint32_t reader,
		       struct stream_reader_page *page, const struct stream_join *join)
{
	struct stream_head *h = w->head;

	fill_seat(&h->seats[reader], join);
	if (join->follow == STREAM_EVERY)
		join_behind(w, reader, &page->cursor, &h->every);
	else if (join->follow == STREAM_SHARE)
		join_behind(w, reader, stream_load(&h->group_open) ? NULL : &w->group->next,
			    &h->sharing);
	else
		set_bit(&h->active, reader);
	stream_add(&h->wake, 1);
}

/* ---- the share group ---- */

/* The slot's frame; 0: it has none. A frame that a claim keeps can be taken away and put back once,
 * by a producer that had not seen the claim. */
static uint64_t frame_of(const struct stream_slot *s)
{
	uint64_t seq = 0;

	for (int i = 0; i < 2 && seq == 0; i++) {
		seq = stream_load(&s->seq);
		if (seq == 0)
			seq = stream_load(&s->taking);
	}
	return seq ? seq : stream_load(&s->seq);
}

static bool is_unfinished(const struct stream_claim *c)
{
	uint64_t word = stream_load(&c->claim);

	if (stream_claim_state(word) == STREAM_NO_CLAIM)
		return false;
	return stream_claim_state(word) != STREAM_RELEASING ||
	       stream_before(stream_load(&c->released), stream_claim_end(word));
}

/* The exchange fails where the slot has another frame by now, which another member has taken. */
static void hand_back(const struct stream_words *w, uint32_t slot, uint32_t reader)
{
	bool lost = w->shape.delivery == STREAM_AT_MOST_ONCE;
	uint64_t seq = frame_of(&w->head->slot[slot]);
	uint64_t owner = stream_owner(seq, reader);

	if (seq == 0)
		return;
	if (stream_swap(&w->group->owner[slot], owner,
			stream_owner(seq, lost ? STREAM_LOST : STREAM_REDO))) {
		stream_add(&w->group->lost, lost);
		stream_swap(&w->group->next, seq, stream_next(seq));
	}
}

/* Nobody is left to take them. */
static void close_group(const struct stream_words *w)
{
	stream_store(&w->head->group_open, 0);
	for (uint32_t i = 0; i < w->shape.slots; i++) {
		uint64_t owner = stream_load(&w->group->owner[i]);

		if (stream_owner_reader(owner) == STREAM_REDO &&
		    stream_swap(&w->group->owner[i], owner, 0))
			stream_add(&w->group->lost, 1);
	}
}

static void leave_group(const struct stream_words *w, uint32_t reader,
			const struct stream_reader_page *page)
{
	for (uint32_t i = 0; page && i < w->shape.slots; i++)
		if (is_unfinished(&page->claims[i]))
			hand_back(w, i, reader);
	stream_add(&w->group->redos, 1);
	clear_bit(&w->head->leaving, reader);
	clear_bit(&w->head->sharing, reader);
	if (stream_load(&w->head->sharing) == 0 && !w->shape.keep_queue)
		close_group(w);
}

/* ---- leaving ---- */

static void end_claims(const struct stream_words *w, struct stream_reader_page *page)
{
	for (uint32_t i = 0; page && i < w->shape.slots; i++) {
		stream_store(&page->claims[i].claim, 0);
		stream_store(&page->claims[i].released, STREAM_RELEASED_ALL);
	}
}

/* A frame goes back to the group before its claim ends. */
static void end_reader(const struct stream_words *w, uint32_t reader,
		       struct stream_reader_page *page)
{
	struct stream_head *h = w->head;

	if (stream_load(&h->sharing) & 1ull << reader)
		leave_group(w, reader, page);
	clear_bit(&h->every, reader);
	clear_bit(&h->active, reader);
	end_claims(w, page);
	if (page)
		stream_add(&page->released_count, 1);
	stream_add(&h->wake, 1);
}

void stream_words_leave(const struct stream_words *w, uint32_t reader,
			struct stream_reader_page *page)
{
	end_reader(w, reader, page);
	stream_store(&w->head->seats[reader].state, STREAM_SEAT_FREE);
}

void stream_words_drop(const struct stream_words *w, uint32_t reader,
		       struct stream_reader_page *page)
{
	stream_store(&w->head->seats[reader].state, STREAM_SEAT_DROPPED);
	end_reader(w, reader, page);
}

void stream_words_free_seat(const struct stream_words *w, uint32_t reader,
			    struct stream_reader_page *page)
{
	end_claims(w, page);
	stream_store(&w->head->seats[reader].state, STREAM_SEAT_FREE);
	stream_add(&w->head->wake, 1);
}

/* ---- members that may have died ---- */

static bool holds_frame(const struct stream_words *w, const struct stream_reader_page *page)
{
	for (uint32_t i = 0; i < w->shape.slots; i++)
		if (is_unfinished(&page->claims[i]))
			return true;
	return false;
}

void stream_words_suspect(const struct stream_words *w, uint32_t reader)
{
	set_bit(&w->head->leaving, reader);
}

void stream_words_return(const struct stream_words *w, uint32_t reader)
{
	clear_bit(&w->head->leaving, reader);
	stream_add(&w->head->wake, 1);
}

uint64_t stream_words_find_leaving(const struct stream_words *w,
				   struct stream_reader_page *const *pages)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < w->shape.readers; i++)
		if (pages[i] && holds_frame(w, pages[i]))
			found |= 1ull << i;
	stream_store(&w->head->leaving, found);
	stream_add(&w->head->wake, 1);
	return found;
}

/* ---- a GPU that waits ---- */

/* The readers for whom the slot's GPU waits. A reader that has joined since is another one. */
static uint64_t awaited_in(const struct stream_words *w, struct stream_reader_page *const *pages,
			   uint32_t slot)
{
	const struct stream_shape *shape = &w->shape;
	struct stream_head *h = w->head;
	uint64_t waits = stream_load(&h->slot[slot].waits), found = 0;
	uint64_t begun_ns = stream_load(&h->slot[slot].begun_ns);

	for (uint32_t i = 0; i < shape->readers; i++) {
		const _Atomic uint64_t *awaited =
			stream_awaited(h, shape->slots, stream_order_size(shape->slots),
				       shape->readers, slot, i);

		if (!(waits & 1ull << i) || !pages[i] ||
		    stream_load(&h->seats[i].state) != STREAM_SEAT_TAKEN ||
		    stream_load(&h->seats[i].joined_ns) > begun_ns)
			continue;
		if (stream_before(stream_load(&pages[i]->claims[slot].released),
				  stream_load(awaited)))
			found |= 1ull << i;
	}
	return found;
}

static bool is_overdue(const struct stream_words *w, const struct stream_slot *s, uint64_t now_ns)
{
	uint64_t begun_ns = stream_load(&s->begun_ns), seq = stream_load(&s->seq);

	return begun_ns != 0 && now_ns > begun_ns &&
	       (now_ns - begun_ns) / 1000000u >= w->shape.limit_ms &&
	       (seq == 0 || stream_before(stream_load(&s->ready), seq));
}

uint64_t stream_words_stuck(const struct stream_words *w, struct stream_reader_page *const *pages,
			    uint64_t now_ns)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < w->shape.readers; i++)
		if (stream_load(&w->head->seats[i].state) == STREAM_SEAT_DROPPED)
			end_claims(w, pages[i]);
	for (uint32_t i = 0; i < w->shape.slots; i++)
		if (is_overdue(w, &w->head->slot[i], now_ns))
			found |= awaited_in(w, pages, i);
	return found;
}

uint64_t stream_words_queued(const struct stream_words *w)
{
	uint64_t newest = stream_load(&w->head->newest), next = stream_load(&w->group->next);
	uint64_t n = stream_before(newest, next) ? 0 : newest - next + 1;

	if (!stream_load(&w->head->group_open))
		return 0;
	for (uint32_t i = 0; i < w->shape.slots; i++)
		n += stream_owner_reader(stream_load(&w->group->owner[i])) == STREAM_REDO;
	return n;
}
