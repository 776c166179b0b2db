/* SPDX-License-Identifier: MIT
 *
 * A reader's calls: the next frame, and its release. The protocol is reader.c's; here are the waits
 * of the host and of the GPU.
 *
 * A frame that was taken for the host may not be finished when the time is over: it is kept, and
 * the next call goes on with it.
 */
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/stream/stream.h"
#include "client/lib/stream/wait.h"
#include "proto/base/clock.h"
#include "proto/stream_atomic.h"

#include <inttypes.h>

#define SPIN_READY_NS 20000ull

static int refused(const struct gpushm_stream *s, int r)
{
	switch (r) {
	case -EPIPE:
		return stream_error(s, EPIPE, "its producer has closed it, and no frame is left");
	case -EOWNERDEAD:
		return stream_error(s, EOWNERDEAD,
				    "its producer died, and no frame is left; the next call waits "
				    "for another producer");
	case -ESTALE:
		return stream_error(s, ESTALE,
				    "this reader was dropped, because it held up the producer: "
				    "close the stream and open it again");
	case -ENOBUFS:
		return stream_error(s, ENOBUFS,
				    "this reader holds %" PRIu32 " frames, as many as it may: "
				    "release one, or open it with a larger max_held",
				    s->follower.reader.max_held);
	default:
		return r;
	}
}

/* ---- taking ---- */

/* Reports a producer's death once; then the reader waits for another producer. */
static int take(struct gpushm_stream *s, struct reader_frame *ret)
{
	struct follower *me = &s->follower;
	uint32_t producers = stream_load(&stream_head(s)->producers);
	bool wakes;
	int r = reader_take(&me->reader, ret, &wakes);

	if (wakes)
		wait_wake(&me->reader.page->released_count);
	if (r == 0 && s->spin_ns > WAIT_SPIN_NS)
		pace_note(&me->pace, ret->seq, ret->time_ns, s->spin_ns);
	if (r == 0)
		me->spin_begun = s->outage = s->idle_since = 0;
	if (r != -EOWNERDEAD)
		return r;
	if (me->told_orphaned == producers)
		return -EAGAIN;
	me->told_orphaned = producers;
	return r;
}

static void wake_up(struct gpushm_stream *s)
{
	lock_guard(&s->lock, LOCK_STREAM);
	if (!s->notify)
		reader_is_awake(&s->follower.reader);
}

static int sleep_once(struct gpushm_stream *s, struct reader_frame *ret, uint64_t deadline)
{
	struct wait_word word = { .word = &stream_head(s)->wake };
	uint64_t now, left;
	int r;

	reader_sleeps(&s->follower.reader, &word.seen);
	r = take(s, ret);
	if (r != -EAGAIN)
		return r;
	now = clock_monotonic_ns();
	if (now >= deadline)
		return -ETIMEDOUT;
	left = deadline - now;
	if (wait_words(&word, 1, left < WAIT_NAP_NS ? left : WAIT_NAP_NS) &&
	    stream_is_idle(s, now, WAIT_IDLE_NS))
		r = wait_check_daemon(s->buffer, &s->outage);
	return r < 0 && r != -EAGAIN ? r : -EAGAIN;
}

static int sleep_until(struct gpushm_stream *s, struct reader_frame *ret, uint64_t deadline)
{
	int r = -EAGAIN;

	while (r == -EAGAIN)
		r = sleep_once(s, ret, deadline);
	wake_up(s);
	return r;
}

/* Many calls may wait for one frame: they spin once. */
static int spin(struct gpushm_stream *s, struct reader_frame *ret, uint64_t deadline)
{
	uint64_t now = clock_monotonic_ns();
	struct wait_spin spin;
	int r = -EAGAIN;

	if (s->follower.spin_begun == 0)
		s->follower.spin_begun = now;
	spin = (struct wait_spin){ stream_spin_end(s, s->follower.spin_begun, now, deadline), 0 };
	while (r == -EAGAIN && wait_spin(&spin))
		r = take(s, ret);
	return r;
}

/* Sleeps while no frame is due. -EAGAIN: it is time to spin. */
static int sleep_before_due(struct gpushm_stream *s, struct reader_frame *ret, uint64_t deadline)
{
	uint64_t wake = pace_wake(&s->follower.pace, clock_monotonic_ns(), s->spin_ns);
	int r;

	if (wake == 0)
		return -EAGAIN;
	r = sleep_until(s, ret, wake < deadline ? wake : deadline);
	if (r != -ETIMEDOUT || wake >= deadline)
		return r;
	pace_woke(&s->follower.pace, wake, clock_monotonic_ns(), s->spin_ns);
	return -EAGAIN;
}

static int take_patiently(struct gpushm_stream *s, struct reader_frame *ret, uint64_t timeout_ms)
{
	uint64_t deadline;
	int r = take(s, ret);

	if (r != -EAGAIN || timeout_ms == 0)
		return r;
	deadline = clock_deadline(timeout_ms);
	r = sleep_before_due(s, ret, deadline);
	if (r == -EAGAIN)
		r = spin(s, ret, deadline);
	return r == -EAGAIN ? sleep_until(s, ret, deadline) : r;
}

/* -EAGAIN and -ETIMEDOUT without a text. */
static int take_or_clear(struct gpushm_stream *s, struct reader_frame *ret, uint64_t timeout_ms)
{
	int r = take_patiently(s, ret, timeout_ms), last = -EAGAIN;

	if (r != -EAGAIN && r != -ETIMEDOUT)
		return r;
	if (s->notify) {
		notify_clear(s, 0);
		last = take(s, ret);
	}
	if (last == -EAGAIN && timeout_ms == 0)
		last = stream_check_daemon(s);
	return last == -EAGAIN ? r : last;
}

static int no_frame(int r)
{
	if (r == -EAGAIN)
		return error_set_text(EAGAIN, "there is no frame yet");
	return error_set_text(ETIMEDOUT, "there was no frame in that time");
}

/* ---- the memory ---- */

/* No futex tells what a GPU writes. -EAGAIN: the time is over. */
static int await_ready(struct gpushm_stream *s, const struct reader_frame *f, uint64_t deadline)
{
	uint64_t now, longest = s->spin_ns > SPIN_READY_NS ? s->spin_ns : SPIN_READY_NS;
	struct wait_step step = { 0 };
	struct wait_spin spin = { 0 };
	int r = 0;

	if (reader_is_ready(&s->follower.reader, f))
		return 0;
	now = clock_monotonic_ns();
	spin.until = now + longest < deadline ? now + longest : deadline;
	while (!reader_is_ready(&s->follower.reader, f) && wait_spin(&spin))
		;
	while (r == 0 && !reader_is_ready(&s->follower.reader, f)) {
		struct timespec t = { 0 };

		now = clock_monotonic_ns();
		if (now >= deadline)
			return -EAGAIN;
		t.tv_nsec = (long)wait_next_step(&step);
		nanosleep(&t, NULL);
		if (stream_is_idle(s, now, WAIT_LOOK_NS))
			r = wait_check_daemon(s->buffer, &s->outage);
	}
	return r;
}

static int await_on_host(struct gpushm_stream *s, struct gpushm_frame *f, uint64_t deadline,
			 uint64_t timeout_ms)
{
	int r = await_ready(s, &f->at, deadline);

	if (r == 0)
		return 0;
	s->follower.pending = f;
	if (r != -EAGAIN)
		return r;
	notify_clear(s, NOTIFY_GPU_NS);
	return no_frame(timeout_ms == 0 ? -EAGAIN : -ETIMEDOUT);
}

/* The page of the frame's release is registered here and not behind the user's kernel, for which
 * the driver may wait. */
static int fill_wait(struct gpushm_stream *s, struct gpushm_frame *f, struct order_op *ops,
		     size_t *ret_n)
{
	int r = stream_register(s, &s->follower.page);

	if (r < 0 || reader_is_ready(&s->follower.reader, &f->at))
		return r;
	r = stream_register(s, &s->head);
	if (r < 0)
		return r;
	ops[0] = (struct order_op){
		.address = order_address(&s->head, &stream_head(s)->slot[f->at.slot].ready),
		.value = f->at.seq
	};
	*ret_n = 1;
	return 0;
}

/* The frame that waits for its producer's GPU, or a new one: *ret. */
static int get_frame(struct gpushm_stream *s, uint64_t timeout_ms, struct gpushm_frame **ret)
{
	struct gpushm_frame *f = s->follower.pending;
	int r;

	s->follower.pending = NULL;
	if (f) {
		*ret = f;
		return 0;
	}
	f = frame_new(s);
	if (!f)
		return stream_error(s, ENOMEM, "out of memory for a frame");
	r = take_or_clear(s, &f->at, timeout_ms);
	if (r < 0)
		return r == -EAGAIN || r == -ETIMEDOUT ? no_frame(r) : refused(s, r);
	f->taken_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
	frame_keep(f);
	*ret = f;
	return 0;
}

int follower_next(struct gpushm_stream *s, bool on_host, uint64_t timeout_ms, struct order_op *ops,
		  size_t *ret_n, struct gpushm_frame **ret)
{
	uint64_t deadline = s->on_gpu ? clock_deadline(timeout_ms) : UINT64_MAX;
	struct gpushm_frame *f = NULL;
	int r = get_frame(s, timeout_ms, &f);

	*ret_n = 0;
	if (r < 0)
		return r;
	r = on_host ? await_on_host(s, f, deadline, timeout_ms) : fill_wait(s, f, ops, ret_n);
	if (r < 0 && !s->follower.pending)
		follower_release(f, GPUSHM_ON_HOST);
	if (r == 0)
		*ret = f;
	return r;
}

/* ---- release ---- */

static int refuse_contents(const struct gpushm_stream *s, const struct reader_frame *f)
{
	int r = reader_check(&s->follower.reader, f);

	if (r == -EPIPE)
		return stream_error(s, EPIPE,
				    "frame %" PRIu64 " is broken: its producer died before it was "
				    "finished",
				    f->seq);
	if (r == -ESTALE)
		return stream_error(s, ESTALE,
				    "frame %" PRIu64 " may have been overwritten, because this "
				    "reader was dropped",
				    f->seq);
	return r;
}

int gpushm_frame_ok(const struct gpushm_frame *f)
{
	int r = error_null(f, "frame");

	if (r == 0)
		r = stream_check_role(f->stream, false);
	return r < 0 ? r : refuse_contents(f->stream, &f->at);
}

int follower_release(struct gpushm_frame *f, void *cuda_stream)
{
	struct gpushm_stream *s = f->stream;
	struct reader *me = &s->follower.reader;
	bool on_host = true, wakes;
	int r = stream_on_host(s, cuda_stream, &on_host), bad = 0;

	if (r == -EINVAL)
		map_wait(cuda_stream); /* another GPU's, which nothing else waits for */
	if (!on_host && r == 0) {
		bad = refuse_contents(s, &f->at);
		r = frame_enqueue_end(f, cuda_stream);
	}
	if (on_host || r < 0) {
		int synchronized = s->on_gpu ? map_synchronize(s->buffer->map) : 0;

		r = r < 0 ? r : synchronized;
		bad = refuse_contents(s, &f->at);
		wakes = reader_release(me, &f->at);
	} else {
		wakes = reader_release_enqueued(me, &f->at);
	}
	if (wakes)
		wait_wake(&me->page->released_count);
	frame_free(f);
	return r < 0 ? r : bad;
}

int gpushm_frame_release(struct gpushm_frame *f, void *cuda_stream)
{
	int r = f ? stream_check_role(f->stream, false) : 0;

	return !f || r < 0 ? r : follower_release(f, cuda_stream);
}

/* ---- the end ---- */

/* What a `share` reader holds is not done: its claims stay, and the daemon gives the frames to
 * another one. After all work of this process on the GPUs has ended. */
void follower_done(struct gpushm_stream *s)
{
	struct follower *me = &s->follower;
	struct gpushm_frame *f;

	list_foreach (f, &s->frames, link)
		if (me->reader.follow != STREAM_SHARE && reader_release(&me->reader, &f->at))
			wait_wake(&me->reader.page->released_count);
}
