/* SPDX-License-Identifier: MIT
 *
 * A reader writes its claim of a slot and then looks whether the slot has the frame still; the
 * producer does it the other way round (writer.c). The head may hold rubbish: then no frame is
 * found, or a wrong one.
 */
#include "client/lib/stream/reader.h"

#include "proto/stream_atomic.h"

#include <errno.h>
#include <string.h>

void reader_init(struct reader *r, const struct stream_head *head, uint32_t slots,
		 struct stream_reader_page *page, struct stream_group_page *group, uint32_t index,
		 uint64_t generation)
{
	const struct stream_seat *seat = &head->seats[index];

	*r = (struct reader){ .head = head,
			      .page = page,
			      .group = group,
			      .follow = (enum stream_follow)stream_load(&seat->follow),
			      .slots = slots,
			      .order_size = stream_order_size(slots),
			      .index = index,
			      .max_held = stream_load(&seat->max_held),
			      .generation = generation,
			      .cursor = stream_load(&page->cursor) };
	if (group)
		r->redos = stream_load(&group->redos) - 1;
}

static bool has_seat(const struct reader *r)
{
	const struct stream_seat *s = &r->head->seats[r->index];

	return stream_load(&s->state) == STREAM_SEAT_TAKEN &&
	       stream_load(&s->generation) == r->generation;
}

/* ---- claims ---- */

/* What the producer may be asleep for has happened. */
static bool tell_producer(struct reader *r)
{
	if (!stream_load(&r->head->asleep))
		return false;
	stream_add(&r->page->released_count, 1);
	return true;
}

/* A release would end both claims. */
static bool is_held(const struct reader *r, uint32_t slot)
{
	return stream_claim_state(stream_load(&r->page->claims[slot].claim)) == STREAM_CLAIMED;
}

/* Whether the slot has this frame and keeps it from now on. No frame has the number 0, and none is
 * taken by the member that holds it; a bad member may write words that say otherwise. */
static bool claim(struct reader *r, uint32_t slot, uint64_t seq, struct reader_frame *ret,
		  bool *ret_wake)
{
	const struct stream_slot *s = &r->head->slot[slot];
	struct stream_claim *c = &r->page->claims[slot];
	uint64_t before;

	if (seq == 0 || stream_load(&s->seq) != seq || is_held(r, slot))
		return false;
	before = stream_load(&c->claim);
	ret->slot = slot;
	ret->seq = seq;
	ret->skipped = 0;
	ret->ticket = ++r->ticket;
	ret->before = stream_claim_state(before) == STREAM_RELEASING ? before : 0;
	stream_store(&c->claim, stream_claim_word(ret->ticket, STREAM_CLAIMED));
	if (stream_load(&s->seq) == seq)
		return true;
	stream_store(&c->claim, ret->before);
	*ret_wake |= tell_producer(r);
	return false;
}

static void take_back(struct reader *r, const struct reader_frame *f, bool *ret_wake)
{
	stream_store(&r->page->claims[f->slot].claim, f->before);
	*ret_wake |= tell_producer(r);
}

/* The slot of a frame, or one that is not the stream's. That of the newest frame is beside its
 * number, in the same cache line. It is a hint, which the claim verifies: the producer may be just
 * about to publish the next frame. */
static uint32_t slot_of(const struct reader *r, uint64_t seq)
{
	const struct stream_head *h = r->head;
	uint64_t hint = stream_load(&h->newest_slot);

	if (hint < r->slots)
		stream_fetch(&r->page->claims[hint]);
	if (hint < r->slots && stream_load(&h->slot[hint].seq) == seq)
		return (uint32_t)hint;
	return stream_load(stream_order(r->head, r->slots, r->order_size, seq));
}

/* ---- which frame ---- */

/* 0; -EAGAIN: it is gone, look again; -ENOENT: no frame is left. */
static int take_latest(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	uint64_t newest = stream_load(&r->head->newest);
	uint32_t slot;

	if (newest == 0 || newest == r->last)
		return -ENOENT;
	slot = slot_of(r, newest);
	if (slot >= r->slots || !claim(r, slot, newest, ret, ret_wake))
		return -EAGAIN;
	if (r->last)
		ret->skipped = newest - r->last - 1 - (newest < r->last);
	return 0;
}

static int take_every(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	uint32_t slot;

	if (stream_before(stream_load(&r->head->newest), r->cursor))
		return -ENOENT;
	slot = slot_of(r, r->cursor);
	if (slot >= r->slots || !claim(r, slot, r->cursor, ret, ret_wake))
		return -EAGAIN;
	r->cursor = stream_next(r->cursor);
	stream_put(&r->page->cursor, r->cursor);
	return 0;
}

/* The claim comes first: a member that dies behind the exchange held the frame. */
static int own(struct reader *r, uint32_t slot, uint64_t seq, uint64_t owner,
	       struct reader_frame *ret, bool *ret_wake)
{
	if (!claim(r, slot, seq, ret, ret_wake))
		return -EAGAIN;
	if (!stream_swap(&r->group->owner[slot], owner, stream_owner(seq, r->index))) {
		take_back(r, ret, ret_wake);
		return -EAGAIN;
	}
	/* The daemon may have looked at this page before the claim was there. */
	if (!has_seat(r)) {
		stream_add(&r->group->lost, 1);
		return -ESTALE;
	}
	return 0;
}

/* The frames of dead members. While the producer looks whether it may take the slot, the frame is
 * away; the producer puts it back, and wakes who sleeps. */
static int take_redo(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	uint64_t redos = stream_load(&r->group->redos);
	bool found = false;

	if (redos == r->redos)
		return -ENOENT;
	for (uint32_t i = 0; i < r->slots; i++) {
		uint64_t owner = stream_load(&r->group->owner[i]);
		uint64_t seq = stream_load(&r->head->slot[i].seq);
		int e;

		if (stream_owner_reader(owner) != STREAM_REDO)
			continue;
		found |= seq == 0;
		if (seq == 0 || owner != stream_owner(seq, STREAM_REDO))
			continue;
		e = own(r, i, seq, owner, ret, ret_wake);
		if (e == 0)
			stream_add(&r->group->redone, 1);
		if (e != -EAGAIN)
			return e;
		found = true;
	}
	if (!found)
		r->redos = redos;
	return -ENOENT;
}

static int take_next(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	uint64_t seq = stream_load(&r->group->next), owner;
	uint64_t newest = stream_load(&r->head->newest); /* later: it only grows */
	uint32_t slot;
	bool taken;
	int e;

	if (stream_before(newest, seq)) {
		if (seq != stream_next(newest)) /* rubbish: members write at most that */
			stream_swap(&r->group->next, seq, stream_next(newest));
		return -ENOENT;
	}
	slot = slot_of(r, seq);
	if (slot >= r->slots)
		return -EAGAIN;
	owner = stream_load(&r->group->owner[slot]);
	taken = stream_is_owned(owner, seq) || is_held(r, slot);
	e = taken ? -EAGAIN : own(r, slot, seq, owner, ret, ret_wake);
	/* Also for a member that has died before it could. */
	if (e == 0 || taken)
		stream_swap(&r->group->next, seq, stream_next(seq));
	return e;
}

static int take_share(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	int e = take_redo(r, ret, ret_wake);

	if (e == -ENOENT)
		e = take_next(r, ret, ret_wake);
	if (e == 0)
		stream_add(&r->group->taken, 1);
	return e;
}

static int take_any(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	switch (r->follow) {
	case STREAM_LATEST:
		return take_latest(r, ret, ret_wake);
	case STREAM_SHARE:
		return r->group ? take_share(r, ret, ret_wake) : -ENOENT;
	default:
		return take_every(r, ret, ret_wake);
	}
}

/* ---- taking ---- */

/* Another member may have died, and what it holds may come back: the daemon wakes the others when
 * it knows. */
static bool is_member_leaving(const struct reader *r)
{
	return r->follow == STREAM_SHARE && (stream_load(&r->head->leaving) & ~(1ull << r->index));
}

/* A member has died since: its frames are still to be taken. */
static bool is_redo_due(const struct reader *r)
{
	return r->follow == STREAM_SHARE && r->group && stream_load(&r->group->redos) != r->redos;
}

/* The state was read before the frames were looked for: what is published comes before an end, and
 * so does what dead members held. The daemon gives that back before it clears `leaving`. */
static int no_frame(const struct reader *r, uint32_t state)
{
	if ((state != STREAM_ENDED && state != STREAM_ORPHANED) || is_member_leaving(r))
		return -EAGAIN;
	if (is_redo_due(r))
		return -EINPROGRESS;
	return state == STREAM_ENDED ? -EPIPE : -EOWNERDEAD;
}

static void fill_frame(struct reader *r, struct reader_frame *f)
{
	const struct stream_slot *s = &r->head->slot[f->slot];
	uint32_t n = stream_load(&s->meta_bytes);

	f->time_ns = stream_load(&s->time_ns);
	f->meta_bytes = n < STREAM_META_MAX ? n : STREAM_META_MAX;
	memcpy(f->meta, s->meta, f->meta_bytes);
	r->last = f->seq;
	stream_put(&r->page->held, stream_add(&r->held, 1) + 1);
	stream_put(&r->page->taken, stream_load(&r->page->taken) + 1);
	stream_put(&r->page->skipped, stream_load(&r->page->skipped) + f->skipped);
}

int reader_try(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	uint32_t state;
	int e;

	if (!has_seat(r))
		return -ESTALE;
	if (stream_load(&r->held) >= r->max_held)
		return -ENOBUFS;
	state = stream_load(&r->head->state);
	e = take_any(r, ret, ret_wake);
	if (e == 0)
		fill_frame(r, ret);
	if (e == -EAGAIN)
		return -EINPROGRESS;
	return e == -ENOENT ? no_frame(r, state) : e;
}

static int try_often(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	int e = -EINPROGRESS;

	for (uint32_t i = 0; i < STREAM_TRIES_MAX(r->slots) && e == -EINPROGRESS; i++)
		e = reader_try(r, ret, ret_wake);
	return e;
}

/* A member has written rubbish into `next`. The producer keeps each frame from there on in a slot,
 * so the group goes on with the oldest that is in one, and is still found there by its number: that
 * of a later frame may have its entry. */
static void mend_next(struct reader *r)
{
	uint64_t next = stream_load(&r->group->next), newest = stream_load(&r->head->newest);
	uint64_t behind = newest - next, to = stream_next(newest);

	if (stream_before(newest, next))
		return;
	for (uint32_t i = 0; i < r->slots; i++) {
		const struct stream_slot *s = &r->head->slot[i];
		uint64_t seq = stream_load(&s->seq);

		seq = seq ? seq : stream_load(&s->taking);
		if (seq && newest - seq <= behind && stream_before(seq, to) && slot_of(r, seq) == i)
			to = seq;
	}
	stream_swap(&r->group->next, next, to);
}

/* `redos` spares the look at each slot, and a bad member leaves it out: the producer waits all the
 * same for who is to redo the frame. Returns whether there is one. */
static bool mend_redos(struct reader *r)
{
	for (uint32_t i = 0; i < r->slots; i++) {
		uint64_t owner = stream_load(&r->group->owner[i]), seq;

		if (stream_owner_reader(owner) != STREAM_REDO)
			continue;
		seq = stream_load(&r->head->slot[i].seq);
		if (seq && owner == stream_owner(seq, STREAM_REDO)) {
			r->redos = stream_load(&r->group->redos) - 1;
			return true;
		}
	}
	return false;
}

int reader_take(struct reader *r, struct reader_frame *ret, bool *ret_wake)
{
	bool shares = r->follow == STREAM_SHARE && r->group;
	int e;

	*ret_wake = false;
	e = try_often(r, ret, ret_wake);
	if (e == -EINPROGRESS && shares) {
		mend_next(r);
		e = try_often(r, ret, ret_wake);
	}
	if (e == -EAGAIN && shares && mend_redos(r))
		e = try_often(r, ret, ret_wake);
	return e == -EINPROGRESS ? -EAGAIN : e;
}

bool reader_is_ready(const struct reader *r, const struct reader_frame *f)
{
	return !stream_before(stream_load(&r->head->slot[f->slot].ready), f->seq);
}

int reader_check(const struct reader *r, const struct reader_frame *f)
{
	const struct stream_slot *s = &r->head->slot[f->slot];
	uint64_t broken;

	if (!has_seat(r))
		return -ESTALE;
	broken = stream_load(&s->broken);
	return stream_is_broken(broken, stream_load(&s->broken_span), f->seq) ? -EPIPE : 0;
}

/* ---- release ---- */

static bool end_claim(struct reader *r, const struct reader_frame *f, uint64_t word)
{
	stream_store(&r->page->claims[f->slot].claim, word);
	stream_put(&r->page->held, stream_add(&r->held, (uint32_t)-1) - 1);
	return tell_producer(r);
}

uint64_t reader_release_value(const struct reader_frame *f)
{
	return stream_claim_end(stream_claim_word(f->ticket, STREAM_RELEASING));
}

uint64_t reader_release_after(const struct reader *r, const struct reader_frame *f)
{
	uint64_t end = stream_claim_end(f->before);

	return stream_before(stream_load(&r->page->claims[f->slot].released), end) ? end : 0;
}

bool reader_release_enqueued(struct reader *r, const struct reader_frame *f)
{
	return end_claim(r, f, stream_claim_word(f->ticket, STREAM_RELEASING));
}

bool reader_release(struct reader *r, const struct reader_frame *f)
{
	return end_claim(r, f, f->before);
}

/* ---- sleep ---- */

void reader_sleeps(struct reader *r, uint32_t *ret_wake)
{
	stream_store(&r->page->asleep, 1);
	*ret_wake = stream_load(&r->head->wake);
}

void reader_is_awake(struct reader *r)
{
	stream_store(&r->page->asleep, 0);
}
