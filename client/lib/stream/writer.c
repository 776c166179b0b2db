/* SPDX-License-Identifier: MIT
 *
 * The producer's claims against its readers' are hazard pointers: the producer takes a slot's frame
 * away (seq = 0) and then reads the readers' claims; a reader writes its claim and then reads seq.
 * So at least one of them sees the other. What readers and members of the group write may be
 * rubbish: it decides for which slots the producer waits, and nothing else.
 */
#include "client/lib/stream/writer.h"

#include "proto/stream_atomic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the slots, the one with the oldest frame first ---- */

static uint32_t *queue_at(const struct writer *w, uint32_t k)
{
	return &w->queue[(w->first + k) % w->slots];
}

static void queue_append(struct writer *w, uint32_t slot)
{
	*queue_at(w, w->n++) = slot;
}

static void queue_prepend(struct writer *w, uint32_t slot)
{
	w->first = (w->first + w->slots - 1) % w->slots;
	w->n++;
	*queue_at(w, 0) = slot;
}

static void queue_remove(struct writer *w, uint32_t k)
{
	for (; k > 0; k--)
		*queue_at(w, k) = *queue_at(w, k - 1);
	w->first = (w->first + 1) % w->slots;
	w->n--;
}

struct aged_slot {
	uint64_t age; /* the largest: it has no frame */
	uint32_t slot;
};

static int compare_age(const void *a, const void *b)
{
	const struct aged_slot *x = a, *y = b;

	if (x->age != y->age)
		return x->age < y->age ? 1 : -1;
	return x->slot < y->slot ? -1 : 1;
}

/* By the distance from the newest frame, since rubbish must be put in an order, too. */
static void sort_slots(struct writer *w, struct aged_slot *slots)
{
	uint64_t newest = stream_load(&w->head->newest);

	for (uint32_t i = 0; i < w->slots; i++) {
		uint64_t seq = stream_load(&w->head->slot[i].seq);

		slots[i] = (struct aged_slot){ seq ? newest - seq : UINT64_MAX, i };
	}
	qsort(slots, w->slots, sizeof(*slots), compare_age);
	for (uint32_t i = 0; i < w->slots; i++)
		queue_append(w, slots[i].slot);
}

int writer_init(struct writer *w, struct stream_head *head, const struct stream_group_page *group,
		uint32_t slots, uint32_t readers)
{
	struct aged_slot *aged;

	*w = (struct writer){ .head = head,
			      .group = group,
			      .slots = slots,
			      .order_size = stream_order_size(slots),
			      .readers = readers,
			      .seq = stream_next(stream_load(&head->newest)) };
	w->queue = calloc(slots, sizeof(*w->queue));
	aged = calloc(slots, sizeof(*aged));
	if (w->queue && aged)
		sort_slots(w, aged);
	free(aged);
	if (w->n == slots)
		return 0;
	writer_done(w);
	return -ENOMEM;
}

void writer_done(struct writer *w)
{
	free(w->queue);
	w->queue = NULL;
}

/* ---- the readers' pages ---- */

static bool is_mapped(const struct writer *w, uint32_t reader)
{
	const struct writer_page *p = &w->pages[reader];

	return p->page && p->generation == stream_load(&w->head->seats[reader].generation);
}

/* Readers without a seat of their own do not exist: the daemon writes these bits. */
static uint64_t readers_in(const struct writer *w, const _Atomic uint64_t *mask)
{
	return stream_load(mask) & (UINT64_MAX >> (STREAM_READERS_MAX - w->readers));
}

/* The first of them. */
static uint32_t next_reader(uint64_t mask)
{
	return (uint32_t)__builtin_ctzll(mask);
}

bool writer_unmapped(const struct writer *w, uint32_t *ret)
{
	for (uint64_t left = readers_in(w, &w->head->active); left; left &= left - 1)
		if (!is_mapped(w, next_reader(left))) {
			*ret = next_reader(left);
			return true;
		}
	return false;
}

const struct stream_reader_page *writer_map(struct writer *w, uint32_t reader, uint64_t generation,
					    const struct stream_reader_page *page)
{
	const struct stream_reader_page *old = w->pages[reader].page;

	w->pages[reader] = (struct writer_page){ page, generation };
	return old;
}

static bool is_somebody_asleep(const struct writer *w)
{
	for (uint64_t left = readers_in(w, &w->head->active); left; left &= left - 1) {
		uint32_t i = next_reader(left);

		if (!is_mapped(w, i) || stream_load(&w->pages[i].page->asleep))
			return true;
	}
	return false;
}

/* ---- who needs a slot ---- */

/* The frames that somebody has still to take: all but those that are more than `behind` before the
 * next one. */
struct wanted {
	uint64_t behind;
	uint32_t reader; /* who wants the oldest of them */
};

/* A cursor behind the next frame is rubbish, and nobody's but its reader's loss. */
static void want(const struct writer *w, struct wanted *a, uint64_t cursor, uint32_t reader)
{
	uint64_t behind = w->seq - cursor;

	if ((int64_t)(cursor - w->seq) <= 0 && behind > a->behind) {
		a->behind = behind;
		a->reader = reader;
	}
}

/* Cursors only grow, so this errs to the safe side when it gets old. A reader that joins later
 * begins with a frame that is not published yet. */
static int find_wanted(const struct writer *w, struct wanted *ret)
{
	uint64_t left = readers_in(w, &w->head->every) & readers_in(w, &w->head->active);

	*ret = (struct wanted){ .reader = STREAM_READERS_MAX };
	for (; left; left &= left - 1) {
		uint32_t i = next_reader(left);

		if (!is_mapped(w, i))
			return -ESTALE;
		want(w, ret, stream_load(&w->pages[i].page->cursor), i);
	}
	if (stream_load(&w->head->group_open))
		want(w, ret, stream_load(&w->group->next), STREAM_READERS_MAX);
	return 0;
}

static bool is_wanted(const struct writer *w, const struct wanted *a, uint64_t seq)
{
	return seq && w->seq - seq <= a->behind;
}

/* A claim of a reader's: 0: it has ended; -EINPROGRESS: a GPU is to end it; -EAGAIN: it lasts. */
static int look_at_claim(const struct stream_claim *c, uint64_t *ret_end)
{
	uint64_t word = stream_load(&c->claim);

	if (stream_claim_state(word) == STREAM_NO_CLAIM)
		return 0;
	if (stream_claim_state(word) != STREAM_RELEASING || word >> 2 > STREAM_TICKETS)
		return -EAGAIN;
	*ret_end = stream_claim_end(word);
	return stream_before(stream_load(&c->released), *ret_end) ? -EINPROGRESS : 0;
}

static bool is_to_be_redone(const struct writer *w, uint32_t slot, uint64_t seq)
{
	return seq && stream_load(&w->head->group_open) &&
	       stream_load(&w->group->owner[slot]) == stream_owner(seq, STREAM_REDO);
}

static void blame(const struct writer *w, struct writer_blocker *b, uint32_t reader)
{
	if (b->reader != STREAM_READERS_MAX || b->generation)
		return; /* of an older slot */
	b->reader = reader;
	b->generation = reader < STREAM_READERS_MAX ? w->pages[reader].generation : UINT64_MAX;
}

/* 0: nobody needs the slot any more when *ret's waits are over; -EAGAIN; -ESTALE. A member that
 * dies has a claim until the daemon has written STREAM_REDO, so that word is read last. */
static int look_at_readers(const struct writer *w, uint32_t slot, uint64_t seq,
			   struct writer_slot *ret, struct writer_blocker *b)
{
	ret->n_waits = 0;
	for (uint64_t left = readers_in(w, &w->head->active); left; left &= left - 1) {
		struct writer_wait wait = { .reader = next_reader(left) };
		int r;

		if (!is_mapped(w, wait.reader))
			return -ESTALE;
		r = look_at_claim(&w->pages[wait.reader].page->claims[slot], &wait.value);
		if (r == -EAGAIN) {
			blame(w, b, wait.reader);
			return r;
		}
		if (r == -EINPROGRESS)
			ret->waits[ret->n_waits++] = wait;
	}
	if (!is_to_be_redone(w, slot, seq))
		return 0;
	blame(w, b, STREAM_READERS_MAX);
	return -EAGAIN;
}

/* ---- taking a slot ---- */

struct taking {
	bool gpu, waits; /* waits: slots that a GPU must wait for are taken, too */
	bool looked;	 /* at the cursors, for `wanted` */
	uint64_t now_ns;
	struct wanted wanted;
};

/* Whether somebody is to take the frame. The cursors, whose cache lines their readers write, are
 * looked at when the frame is not before the oldest of the last time: cursors only grow. 0;
 * -ENOENT: it is wanted, as all behind it; -ESTALE. */
static int look_at_cursors(struct writer *w, struct taking *t, uint64_t seq,
			   struct writer_blocker *b)
{
	int r = 0;

	if (seq == 0 || (w->knows_passed && stream_before(seq, w->passed)))
		return 0;
	if (!t->looked) {
		r = find_wanted(w, &t->wanted);
		if (r < 0)
			return r;
		t->looked = true;
		w->passed = w->seq - t->wanted.behind;
		w->knows_passed = true;
	}
	if (!is_wanted(w, &t->wanted, seq))
		return 0;
	blame(w, b, t->wanted.reader);
	return -ENOENT;
}

static int look(const struct writer *w, const struct taking *t, uint32_t slot, uint64_t seq,
		struct writer_slot *ret, struct writer_blocker *b)
{
	int r = look_at_readers(w, slot, seq, ret, b);

	if (r < 0 || ret->n_waits == 0 || t->waits)
		return r;
	if (!t->gpu)
		blame(w, b, ret->waits[0].reader);
	return -EAGAIN;
}

/* Tells the daemon which readers hold the GPU up. */
static void note_waits(struct writer *w, const struct writer_slot *s)
{
	uint64_t mask = 0;

	for (size_t i = 0; i < s->n_waits; i++) {
		uint32_t reader = s->waits[i].reader;

		stream_put(stream_awaited(w->head, w->slots, w->order_size, w->readers, s->slot,
					  reader),
			   s->waits[i].value);
		mask |= 1ull << reader;
	}
	stream_put(&w->head->slot[s->slot].waits, mask);
}

/* Takes the frame away, and looks again. */
static int take_away(struct writer *w, const struct taking *t, uint32_t slot, uint64_t seq,
		     struct writer_slot *ret, struct writer_blocker *b)
{
	struct stream_slot *s = &w->head->slot[slot];
	int r;

	stream_put(&s->begun_ns, t->now_ns);
	stream_put(&s->taking, seq);
	stream_store(&s->seq, 0);
	r = look(w, t, slot, seq, ret, b);
	if (r < 0)
		stream_store(&s->seq, seq);
	else
		note_waits(w, ret);
	stream_put(&s->taking, 0);
	if (r < 0 && is_somebody_asleep(w)) { /* a member that was to redo the frame */
		stream_add(&w->head->wake, 1);
		b->wake = true;
	}
	return r;
}

/* -ENOENT: no slot behind this one can be taken, either. */
static int try_slot(struct writer *w, struct taking *t, uint32_t slot, struct writer_slot *ret,
		    struct writer_blocker *b)
{
	const struct stream_slot *s = &w->head->slot[slot];
	uint64_t seq = stream_load(&s->seq);
	int r;

	if (seq && seq == stream_load(&w->head->newest))
		return -EAGAIN;
	r = look_at_cursors(w, t, seq, b);
	if (r < 0)
		return r;
	ret->slot = slot;
	ret->seq = w->seq;
	ret->finished = seq && stream_before(stream_load(&s->ready), seq) ? seq : 0;
	if (ret->finished && !t->gpu)
		return -EAGAIN;
	r = look(w, t, slot, seq, ret, b);
	return r < 0 ? r : take_away(w, t, slot, seq, ret, b);
}

static int try_slots(struct writer *w, struct taking *t, struct writer_slot *ret,
		     struct writer_blocker *b)
{
	int r = -EAGAIN;

	for (uint32_t k = 0; k < w->n && r == -EAGAIN; k++) {
		r = try_slot(w, t, *queue_at(w, k), ret, b);
		if (r == 0)
			queue_remove(w, k);
	}
	return r == -ENOENT ? -EAGAIN : r;
}

int writer_take(struct writer *w, bool gpu, uint64_t now_ns, struct writer_slot *ret,
		struct writer_blocker *blocker)
{
	struct taking t = { .gpu = gpu, .now_ns = now_ns };
	int r;

	*blocker = (struct writer_blocker){ .reader = STREAM_READERS_MAX };
	r = try_slots(w, &t, ret, blocker);
	if (r == -EAGAIN && gpu) {
		t.waits = true;
		r = try_slots(w, &t, ret, blocker);
	}
	return r;
}

/* ---- the frame ---- */

#define FETCHED_MAX 8

/* The lines of the slot that is probably taken next, while the producer does something else. */
static void fetch_next(const struct writer *w)
{
	uint64_t left = readers_in(w, &w->head->active);
	uint32_t slot = *queue_at(w, 0);

	if (w->n < 4) /* its readers write these lines still */
		return;
	stream_fetch(&w->head->slot[slot]);
	for (int i = 0; left && i < FETCHED_MAX; i++, left &= left - 1) {
		const struct stream_reader_page *p = w->pages[next_reader(left)].page;

		if (p)
			__builtin_prefetch(&p->claims[slot]);
	}
}

bool writer_publish(struct writer *w, const struct writer_slot *slot, bool on_host,
		    uint64_t time_ns, const void *meta, size_t n)
{
	struct stream_slot *s = &w->head->slot[slot->slot];
	bool asleep;

	n = n < STREAM_META_MAX ? n : STREAM_META_MAX;
	if (n > 0)
		memcpy(s->meta, meta, n);
	stream_put(&s->meta_bytes, (uint32_t)n);
	stream_put(&s->time_ns, time_ns);
	if (on_host)
		stream_put(&s->ready, slot->seq);
	stream_put(&s->seq, slot->seq);
	stream_put(stream_order(w->head, w->slots, w->order_size, slot->seq), slot->slot);
	stream_put(&w->head->newest_slot, slot->slot); /* a hint */
	stream_store(&w->head->newest, slot->seq);
	queue_append(w, slot->slot);
	w->seq = stream_next(slot->seq);
	asleep = is_somebody_asleep(w);
	if (asleep)
		stream_add(&w->head->wake, 1);
	else
		fetch_next(w);
	return asleep;
}

void writer_cancel(struct writer *w, const struct writer_slot *slot)
{
	struct stream_slot *s = &w->head->slot[slot->slot];

	/* A graph has written it. The number is given again. */
	if (!stream_before(stream_load(&s->ready), slot->seq))
		stream_store(&s->ready, slot->seq - 1);
	stream_store(&s->begun_ns, 0);
	queue_prepend(w, slot->slot);
}
