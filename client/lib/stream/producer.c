/* SPDX-License-Identifier: MIT
 *
 * The producer's calls: a slot to fill, and its publication. The protocol is writer.c's; here are
 * the readers' pages, which are fetched from the daemon when a reader has joined, the waits of the
 * host and of the GPU, and the end of a reader that holds up the producer for too long.
 *
 * A page that was replaced may still be one that a GPU waits for. It stays mapped and registered
 * until the frame is finished whose slot the GPU waited for.
 */
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/stream/pages.h"
#include "client/lib/stream/stream.h"
#include "client/lib/stream/wait.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/stream_atomic.h"

#include <inttypes.h>

#define REPLY_MS_MIN 1000u

static const struct stream_reader_page *reader_page(const struct gpushm_stream *s, uint32_t reader)
{
	return s->producer.pages[reader].host;
}

/* A call that takes a slot. */
struct patience {
	bool gpu;
	uint64_t timeout_ms;
	uint64_t deadline; /* 0: it has not had to wait so far */
	struct wait_step step;
	struct writer_blocker blocker;
	enum { PRESENT, ABSENT, BUSY } daemon; /* when it was needed last */
	uint32_t dropped;		       /* the last reader that was dropped, */
	uint64_t dropped_generation;
};

static uint64_t deadline_of(struct patience *w)
{
	if (w->deadline == 0)
		w->deadline = clock_deadline(w->timeout_ms);
	return w->deadline;
}

/* ---- the daemon ---- */

/* For its reply: as long as the call may wait. A shorter time would be too little on a busy
 * machine, at each call again. */
static uint64_t request_time(struct patience *w)
{
	uint64_t left = clock_left_ms(deadline_of(w));

	return left > REPLY_MS_MIN ? left : REPLY_MS_MIN;
}

/* -EAGAIN: the time is over. */
static int ask_daemon(struct gpushm_stream *s, struct patience *w)
{
	bool busy;
	int r = wait_for_daemon(s->buffer, clock_left_ms(deadline_of(w)), &s->outage, &busy);

	w->daemon = r != -EAGAIN ? PRESENT : busy ? BUSY : ABSENT;
	return r;
}

/* It was waited for until now. No word of the stream changes when it is back. */
static int unanswered(struct gpushm_stream *s, const struct patience *w, int number)
{
	s->producer.blamed_since = clock_monotonic_ns();
	notify_clear(s, NOTIFY_DAEMON_NS);
	if (w->daemon == ABSENT)
		return stream_error(
			s, number,
			"a reader has joined, and the daemon, which has its page, does not "
			"answer");
	return stream_error(
		s, number,
		"a reader has joined, and the daemon can't be asked for its page while "
		"another thread waits for a reply: give that thread a connection of its "
		"own");
}

/* ---- the readers' pages ---- */

static bool is_passed(const struct gpushm_stream *s, const struct retired_page *p)
{
	uint64_t ready = stream_load(&stream_head(s)->slot[p->slot].ready);

	return p->seq == 0 || !stream_before(ready, p->seq);
}

/* Under s->lock. all: no GPU waits for anything any more. */
static void release_retired(struct gpushm_stream *s, bool all)
{
	struct retired_page **at = &s->producer.retired, *p;

	while ((p = *at)) {
		if (!all && !is_passed(s, p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		stream_unmap(s, &p->page);
		free(p);
	}
}

/* Under s->lock. */
static void retire_page(struct gpushm_stream *s, uint32_t reader, struct retired_page *spare)
{
	struct producer *p = &s->producer;

	*spare = (struct retired_page){ .next = p->retired,
					.page = p->pages[reader],
					.slot = p->waited[reader].slot,
					.seq = p->waited[reader].seq };
	p->retired = spare;
	p->waited[reader].seq = 0;
	release_retired(s, false);
}

static int map_reader(struct gpushm_stream *s, uint32_t reader, uint64_t ms)
{
	struct retired_page *spare = calloc(1, sizeof(*spare));
	struct producer *p = &s->producer;
	struct order_page page;
	uint64_t generation;
	int r = spare ? pages_map(s->buffer, STREAM_PAGE_READER + reader,
				  stream_reader_bytes(s->slots), ms, &page, &generation)
		      : stream_error(s, ENOMEM, "out of memory for a reader's page");

	if (r < 0) {
		free(spare);
		return r;
	}
	lock_guard(&s->lock, LOCK_STREAM);
	retire_page(s, reader, spare);
	p->pages[reader] = page;
	writer_map(&p->writer, reader, generation, page.host);
	p->maps++;
	return 0;
}

/* A reader may leave between the look and the request; then it is not found. */
#define MAP_TRIES_MAX 16
static int map_readers(struct gpushm_stream *s, struct patience *w)
{
	uint32_t reader;
	int r = 0;

	for (int lost = 0; writer_unmapped(&s->producer.writer, &reader);) {
		r = ask_daemon(s, w);
		if (r == 0)
			r = map_reader(s, reader, request_time(w));
		if (r == -ETIMEDOUT) {
			w->daemon = ABSENT;
			r = -EAGAIN;
		}
		if (r < 0 && (r != -ENOENT || ++lost >= MAP_TRIES_MAX))
			return r;
	}
	return 0;
}

/* Only a slot for which a GPU waits needs the time. */
static int take(struct gpushm_stream *s, struct patience *w)
{
	uint64_t now = w->gpu ? clock_monotonic_ns() : 0;
	int r;

	do {
		r = map_readers(s, w);
		if (r == 0)
			r = writer_take(&s->producer.writer, w->gpu, now, &s->producer.slot,
					&w->blocker);
		if (w->blocker.wake)
			wait_wake(&stream_head(s)->wake);
		w->blocker.wake = false;
	} while (r == -ESTALE);
	return r;
}

/* ---- who is in the way ---- */

/* The member of the share group that has held a frame for the longest time; without one, the first
 * that does not wait for a frame; without one, the first: it was woken, and takes nothing. */
static uint32_t slowest_member(const struct gpushm_stream *s)
{
	uint64_t members = stream_load(&stream_head(s)->sharing), since = UINT64_MAX;
	uint32_t found = STREAM_READERS_MAX, sleeps = STREAM_READERS_MAX;

	for (; members; members &= members - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(members);
		const struct stream_reader_page *p = reader_page(s, i);
		uint64_t at = p ? stream_load(&p->oldest_ns) : 0;

		if (!p)
			continue;
		if (at && at < since) {
			since = at;
			found = i;
		} else if (at == 0 && stream_load(&p->asleep)) {
			sleeps = sleeps == STREAM_READERS_MAX ? i : sleeps;
		} else if (found == STREAM_READERS_MAX) {
			found = i;
		}
	}
	return found == STREAM_READERS_MAX ? sleeps : found;
}

static int blocked(const struct gpushm_stream *s, const struct writer_blocker *blocker, int number)
{
	uint32_t i = blocker->reader;
	const struct stream_reader_page *p = i < STREAM_READERS_MAX ? reader_page(s, i) : NULL;
	uint64_t oldest = p ? stream_load(&p->oldest) : 0;

	if (blocker->generation == 0)
		return stream_error(s, number,
				    "no slot is free: the GPU has not finished the frames before");
	if (!p)
		return stream_error(s, number,
				    "no slot is free: the `share` readers have not taken all "
				    "frames yet");
	if (oldest == 0)
		return stream_error(s, number,
				    "no slot is free: reader %" PRIu32 " (process %d) has not "
				    "taken its next frame yet",
				    i, (int)stream_load(&stream_head(s)->seats[i].pid));
	return stream_error(s, number,
			    "no slot is free: reader %" PRIu32 " (process %d) has held frame "
			    "%" PRIu64 " for %" PRIu64 " ms",
			    i, (int)stream_load(&stream_head(s)->seats[i].pid), oldest,
			    (clock_monotonic_ns() - stream_load(&p->oldest_ns)) / 1000000u);
}

static bool has_ended(const struct gpushm_stream *s, uint32_t reader, uint64_t generation)
{
	const struct stream_seat *seat = &stream_head(s)->seats[reader];

	return stream_load(&seat->generation) != generation ||
	       stream_load(&seat->state) != STREAM_SEAT_TAKEN;
}

/* The limit counts the producer's wait, whichever reader blocks it. It starts again if a member of
 * the group that blocked it dies or is dropped, because another member gets its frame. One wait
 * has at most as many of these restarts as the stream has seats: a member can join again. */
static void note_blocker(struct gpushm_stream *s, const struct writer_blocker *b, uint64_t now)
{
	struct producer *p = &s->producer;
	bool is_group = b->reader == STREAM_READERS_MAX ||
			stream_load(&stream_head(s)->sharing) & 1ull << b->reader;

	if (!is_group || (b->reader == p->blamed && b->generation == p->blamed_generation))
		return;
	if (p->blamed_generation && p->blamed < STREAM_READERS_MAX &&
	    has_ended(s, p->blamed, p->blamed_generation) && p->extensions < s->readers) {
		p->blamed_since = now;
		p->extensions++;
	}
	p->blamed = b->reader;
	p->blamed_generation = b->generation;
}

static uint64_t limit_end(const struct gpushm_stream *s)
{
	return clock_after(s->producer.blamed_since, s->limit_ms);
}

static bool is_over_limit(const struct gpushm_stream *s, uint64_t now)
{
	return now >= s->producer.drop_after && now >= limit_end(s);
}

/* Ends the membership of the reader that is in the way. False: nobody was dropped. */
static bool drop_blocker(struct gpushm_stream *s, struct patience *w, uint64_t now)
{
	uint32_t reader =
		w->blocker.reader < STREAM_READERS_MAX ? w->blocker.reader : slowest_member(s);
	uint64_t generation, outage = 0;
	bool busy;
	int r;

	/* Nobody is in the way: the GPU has not finished the frames before. */
	if (reader == STREAM_READERS_MAX || w->blocker.generation == 0)
		return false;
	generation = s->producer.writer.pages[reader].generation;
	if (w->dropped_generation == generation && w->dropped == reader)
		return false;
	/* Without a daemon there is nobody who could: the slot may become free all the same. */
	r = wait_for_daemon(s->buffer, 0, &outage, &busy);
	if (r == 0)
		r = pages_drop(s->buffer, reader, generation, request_time(w));
	if (r < 0 && r != -ENOENT && r != -EBADF) {
		s->producer.drop_after = now + WAIT_NAP_NS;
		return false;
	}
	w->dropped = reader;
	w->dropped_generation = generation;
	return true;
}

/* ---- waiting for a slot ---- */

/* The head's word changes when the daemon changes something of the stream; this process does not
 * publish meanwhile. */
size_t producer_words(struct gpushm_stream *s, struct wait_word *ret)
{
	struct stream_head *h = stream_head(s);
	size_t n = 1;

	stream_store(&h->asleep, 1);
	ret[0] = (struct wait_word){ &h->wake, stream_load(&h->wake) };
	lock_guard(&s->lock, LOCK_STREAM);
	for (uint64_t left = stream_load(&h->active); left; left &= left - 1) {
		const struct stream_reader_page *p = reader_page(s, __builtin_ctzll(left));

		if (p)
			ret[n++] = (struct wait_word){ &p->released_count,
						       stream_load(&p->released_count) };
	}
	return n;
}

static void wake_up(struct gpushm_stream *s)
{
	lock_guard(&s->lock, LOCK_STREAM);
	if (!s->notify)
		stream_store(&stream_head(s)->asleep, 0);
}

/* What a GPU releases wakes nobody: a host that waits for it looks at intervals. */
static uint64_t nap(const struct gpushm_stream *s, struct patience *w, uint64_t now)
{
	uint64_t ns = clock_earlier(WAIT_NAP_NS, w->deadline - now), limit = limit_end(s);

	if (s->on_gpu && !w->gpu)
		ns = clock_earlier(ns, wait_next_step(&w->step));
	if (now < limit)
		ns = clock_earlier(ns, limit - now);
	return ns;
}

/* Members mend what a bad one has written to the group's page, but one that sleeps does not see it,
 * and would be dropped for it. */
static void wake_group(struct gpushm_stream *s, const struct writer_blocker *b)
{
	if (b->generation == 0 || b->reader != STREAM_READERS_MAX)
		return;
	stream_add(&stream_head(s)->wake, 1);
	wait_wake(&stream_head(s)->wake);
}

/* One round of a sleep: -EAGAIN: the caller goes on waiting. */
static int wait_once(struct gpushm_stream *s, struct patience *w)
{
	struct wait_word words[WAIT_WORDS_MAX];
	uint64_t maps = s->producer.maps, now, ns;
	size_t n;
	int r;

	wake_group(s, &w->blocker);
	n = producer_words(s, words);
	r = take(s, w);
	now = clock_monotonic_ns();

	if (r == -EAGAIN && w->daemon != PRESENT)
		return -ETIMEDOUT; /* that was waited for */
	if (r != -EAGAIN || s->producer.maps != maps)
		return r; /* a new page's word is not among these */
	note_blocker(s, &w->blocker, now);
	if (is_over_limit(s, now) && drop_blocker(s, w, now))
		return -EAGAIN;
	if (now >= w->deadline) {
		r = w->timeout_ms == 0 ? stream_check_daemon(s) : -EAGAIN;
		return r == -EAGAIN ? -ETIMEDOUT : r;
	}
	ns = nap(s, w, now);
	if (wait_words(words, n, ns) && stream_is_idle(s, now, WAIT_LOOK_NS))
		r = wait_check_daemon(s->buffer, &s->outage);
	return r < 0 ? r : -EAGAIN;
}

/* Not beyond the time at which a reader is dropped. Many calls may wait for one slot: they spin
 * once. */
static int spin(struct gpushm_stream *s, struct patience *w)
{
	const struct producer *p = &s->producer;
	struct wait_spin spin = { stream_spin_end(s, p->stalled_since, clock_monotonic_ns(),
						  clock_earlier(w->deadline, limit_end(s))),
				  0 };
	int r = -EAGAIN;

	while (r == -EAGAIN && wait_spin(&spin))
		r = take(s, w);
	return r;
}

static int wait_for_slot(struct gpushm_stream *s, struct patience *w)
{
	int r = w->timeout_ms > 0 && w->daemon == PRESENT ? spin(s, w) : -EAGAIN;
	int number = w->timeout_ms == 0 ? EAGAIN : ETIMEDOUT;

	if (r == -EAGAIN && w->daemon == PRESENT)
		notify_clear(s, s->on_gpu && !w->gpu ? NOTIFY_GPU_NS : 0);
	while (r == -EAGAIN && w->daemon == PRESENT)
		r = wait_once(s, w);
	wake_up(s);
	if (w->daemon != PRESENT && (r == -EAGAIN || r == -ETIMEDOUT))
		return unanswered(s, w, number);
	return r == -ETIMEDOUT ? blocked(s, &w->blocker, number) : r;
}

/* Counts the time for people. */
static int take_patiently(struct gpushm_stream *s, struct patience *w)
{
	struct stream_head *h = stream_head(s);
	struct producer *p = &s->producer;
	int r = take(s, w);
	uint64_t begun;

	if (r == -EAGAIN) {
		begun = clock_monotonic_ns();
		if (p->stalled_since == 0) {
			p->stalled_since = p->blamed_since = begun;
			p->blamed_generation = p->extensions = 0;
			stream_add(&h->stalls, 1);
		}
		deadline_of(w);
		stream_store(&h->waited_ns, p->stalled_since);
		r = wait_for_slot(s, w);
		stream_store(&h->waited_ns, 0);
		stream_add(&h->stalled_ns, clock_monotonic_ns() - begun);
	}
	if (r == 0)
		p->stalled_since = s->outage = s->idle_since = 0;
	return r;
}

/* ---- begin ---- */

/* What the GPU waits for before it may write to the slot. The page of the frame's publication is
 * registered here and not behind the user's kernel, for which the driver may wait. */
static int fill_waits(struct gpushm_stream *s, struct order_op *ops, size_t *ret_n)
{
	struct producer *p = &s->producer;
	const struct writer_slot *slot = &p->slot;
	size_t n = 0;
	int r = stream_register(s, &s->head);

	for (size_t i = 0; i < slot->n_waits && r == 0; i++) {
		const struct writer_wait *w = &slot->waits[i];
		struct order_page *page = &p->pages[w->reader];
		const struct stream_reader_page *words = page->host;

		r = stream_register(s, page);
		ops[n++] = (struct order_op){
			.address = order_address(page, &words->claims[slot->slot].released),
			.value = w->value
		};
		p->waited[w->reader].slot = slot->slot;
		p->waited[w->reader].seq = slot->seq;
	}
	if (slot->finished)
		ops[n++] = (struct order_op){
			.address = order_address(&s->head, &stream_head(s)->slot[slot->slot].ready),
			.value = slot->finished
		};
	*ret_n = n;
	return r;
}
_Static_assert(ORDER_OPS_MAX > STREAM_READERS_MAX, "all waits fit");

static void begin_frame(struct gpushm_frame *f, const struct writer_slot *slot)
{
	f->at = (struct reader_frame){ .slot = slot->slot, .seq = slot->seq };
	f->stream->producer.filling = f;
	frame_keep(f);
}

int producer_begin(struct gpushm_stream *s, bool on_host, uint64_t timeout_ms, struct order_op *ops,
		   size_t *ret_n, struct gpushm_frame **ret)
{
	struct patience w = { .gpu = !on_host, .timeout_ms = timeout_ms };
	struct gpushm_frame *f;
	int r;

	if (s->producer.filling)
		return stream_error(s, EALREADY, "a frame is being filled: publish or cancel it");
	f = frame_new(s);
	if (!f)
		return stream_error(s, ENOMEM, "out of memory for a frame");
	*ret_n = 0;
	r = take_patiently(s, &w);
	if (r < 0)
		return r;
	begin_frame(f, &s->producer.slot);
	r = on_host ? 0 : fill_waits(s, ops, ret_n);
	if (r < 0)
		producer_cancel(f);
	else
		*ret = f;
	return r;
}

/* ---- publish and cancel ---- */

void producer_cancel(struct gpushm_frame *f)
{
	struct gpushm_stream *s = f->stream;

	error_guard();
	map_synchronize(s->buffer->map);
	writer_cancel(&s->producer.writer, &s->producer.slot);
	s->producer.filling = NULL;
	frame_free(f);
}

/* Lets the GPU finish the frame, or waits until it is finished. */
static int finish(struct gpushm_frame *f, void *cuda_stream, bool on_host)
{
	struct gpushm_stream *s = f->stream;

	if (on_host && !f->in_graph)
		return s->on_gpu ? map_synchronize(s->buffer->map) : 0;
	return frame_enqueue_end(f, cuda_stream);
}

static int publish(struct gpushm_frame *f, void *cuda_stream, bool on_host, const void *meta,
		   size_t n)
{
	struct gpushm_stream *s = f->stream;
	struct producer *p = &s->producer;
	int r = finish(f, cuda_stream, on_host);

	if (r < 0) {
		producer_cancel(f);
		return r;
	}
	if (writer_publish(&p->writer, &p->slot, on_host && !f->in_graph, clock_monotonic_ns(),
			   meta, n))
		wait_wake(&stream_head(s)->wake);
	p->filling = NULL;
	frame_free(f);
	return 0;
}

int gpushm_frame_publish(struct gpushm_frame *f, void *cuda_stream, const void *meta, size_t n)
{
	bool on_host;
	int r = error_null(f, "frame");

	if (r == 0)
		r = stream_check_role(f->stream, true);
	if (r < 0)
		return r;
	if (n > GPUSHM_META_MAX || (n > 0 && !meta))
		return stream_error(f->stream, EINVAL,
				    "%zu bytes with a frame; it may have up to %u of them", n,
				    GPUSHM_META_MAX);
	r = stream_on_host(f->stream, cuda_stream, &on_host);
	if (r == 0)
		return publish(f, cuda_stream, on_host, meta, n);
	if (r != -EINVAL) /* else the frame stays the caller's, as with too many bytes */
		producer_cancel(f);
	return r;
}

/* ---- the end ---- */

/* After all work of this process on the GPUs has ended. */
void producer_done(struct gpushm_stream *s)
{
	struct producer *p = &s->producer;

	if (p->filling)
		producer_cancel(p->filling);
	writer_done(&p->writer);
	lock_guard(&s->lock, LOCK_STREAM);
	release_retired(s, true);
	for (uint32_t i = 0; i < STREAM_READERS_MAX; i++)
		stream_unmap(s, &p->pages[i]);
}
