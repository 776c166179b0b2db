/* SPDX-License-Identifier: MIT
 *
 * A thread that sleeps on the stream's words and writes to an eventfd when one has changed. It says
 * that it sleeps all the time, so that others wake it with each change; without it publishing and
 * releasing cost nothing for a process that does not poll.
 *
 * The thread takes nothing: a change may turn out to be of no use. The fd becomes unreadable when a
 * call finds nothing, just before its last look. The thread has no signals, and does not exist in a
 * forked child.
 */
#include "client/lib/base/locks.h"
#include "client/lib/stream/stream.h"
#include "client/lib/stream/wait.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"
#include "proto/stream_atomic.h"

#include <sys/eventfd.h>

struct notify {
	struct gpushm_stream *stream;
	int fd;
	pthread_t thread;
	_Atomic uint32_t poked; /* a futex of this process: + 1 to end the nap */
	_Atomic bool stops;
	_Atomic uint64_t poll_ns; /* what the caller waits for wakes nobody; 0: it does */
};

/* The head's word first: see wait_words(). */
static size_t collect(struct notify *n, struct wait_word *ret)
{
	struct gpushm_stream *s = n->stream;
	size_t count = 1;

	if (s->is_producer) {
		count = producer_words(s, ret);
	} else {
		ret[0].word = &stream_head(s)->wake;
		reader_sleeps(&s->follower.reader, &ret[0].seen);
	}
	ret[count++] = (struct wait_word){ &n->poked, stream_load(&n->poked) };
	return count;
}

/* Another number of words: a reader has come or gone. */
static bool has_changed(const struct wait_word *before, size_t n_before,
			const struct wait_word *after, size_t n_after)
{
	bool changed = n_before != n_after;

	for (size_t i = 0; i < n_after && !changed; i++)
		changed = before[i].word != after[i].word || before[i].seen != after[i].seen;
	return changed;
}

static void *run(void *arg)
{
	struct wait_word words[2][WAIT_WORDS_MAX];
	struct notify *n = arg;
	size_t count[2];
	int now = 0;
	bool over;

	count[now] = collect(n, words[now]);
	eventfd_write(n->fd, 1);
	while (!stream_load(&n->stops)) {
		uint64_t poll_ns = stream_load(&n->poll_ns);

		over = wait_words(words[now], count[now], poll_ns ? poll_ns : WAIT_NAP_NS);
		now = !now;
		count[now] = collect(n, words[now]);
		if (poll_ns || has_changed(words[!now], count[!now], words[now], count[now]) ||
		    (over && wait_misses_daemon(n->stream->buffer)))
			eventfd_write(n->fd, 1);
	}
	return NULL;
}

static int start(struct gpushm_stream *s)
{
	struct notify *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return stream_error(s, ENOMEM, "out of memory for its fd");
	n->stream = s;
	n->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->fd < 0) {
		r = stream_error(s, errno, "no eventfd: %m");
		free(n);
		return r;
	}
	/* From now on next() and begin() leave the thread's word alone. */
	lock_take(&s->lock, LOCK_STREAM);
	s->notify = n;
	lock_drop(&s->lock);
	r = thread_start(&n->thread, run, n);
	if (r == 0)
		return 0;
	lock_take(&s->lock, LOCK_STREAM);
	s->notify = NULL;
	lock_drop(&s->lock);
	close_fd(&n->fd);
	free(n);
	return stream_error(s, r == -EAGAIN ? ENOMEM : -r, "no thread for its fd");
}

int gpushm_stream_fd(struct gpushm_stream *s)
{
	int r = stream_check(s);

	if (r == 0 && !s->notify)
		r = start(s);
	return r < 0 ? r : s->notify->fd;
}

static void poke(struct notify *n)
{
	stream_add(&n->poked, 1);
	wait_wake(&n->poked);
}

void notify_clear(struct gpushm_stream *s, uint64_t poll_ns)
{
	struct notify *n = s->notify;
	eventfd_t count;

	if (!n)
		return;
	eventfd_read(n->fd, &count);
	if (stream_load(&n->poll_ns) == poll_ns)
		return;
	stream_store(&n->poll_ns, poll_ns);
	if (poll_ns)
		poke(n);
}

void notify_stop(struct gpushm_stream *s)
{
	struct notify *n = s->notify;

	if (!n)
		return;
	stream_store(&n->stops, true);
	poke(n);
	pthread_join(n->thread, NULL);
	close_fd(&n->fd);
	s->notify = NULL;
	free(n);
}
