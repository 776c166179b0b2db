/* SPDX-License-Identifier: MIT
 *
 * Futexes. The words lie in shared memory, so the calls are those without FUTEX_PRIVATE_FLAG; to
 * sleep on a word of a file, a read-only mapping is enough (kernel/futex/core.c, FUTEX_READ).
 *
 * FUTEX_WAITV came with Linux 5.16, and seccomp filters of older container engines refuse it.
 */
#include "client/lib/stream/wait.h"

#include "client/lib/base/locks.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/hello.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As linux/futex.h has them since Linux 5.16. */
struct waiter {
	uint64_t val, uaddr;
	uint32_t flags, reserved;
};
#define WAITER_U32 2u
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

#define FALLBACK_NS 2000000ull
#define CLOCK_LOOKS 8
#define LOCK_MS_MAX 1000u
#define ASK_MS_MIN 3u /* a daemon that lives replies in less */
#define STEP_FIRST_NS 20000ull
#define STEP_MAX_NS WAIT_LOOK_NS

/* Whether the time is over. */
static bool wait_one(const struct wait_word *w, uint64_t ns)
{
	struct timespec t = clock_timespec(ns);

	return syscall(SYS_futex, w->word, FUTEX_WAIT, w->seen, &t, NULL, 0) < 0 &&
	       errno == ETIMEDOUT;
}

/* False: the kernel has no such call, or refuses it. */
static bool wait_several(const struct wait_word *words, size_t n, uint64_t ns, bool *ret_over)
{
	struct timespec end = clock_timespec(clock_monotonic_ns() + ns);
	struct waiter waiters[WAIT_WORDS_MAX];

	for (size_t i = 0; i < n; i++)
		waiters[i] = (struct waiter){ .val = words[i].seen,
					      .uaddr = (uintptr_t)words[i].word,
					      .flags = WAITER_U32 };
	*ret_over = false;
	if (syscall(SYS_futex_waitv, waiters, n, 0, &end, CLOCK_MONOTONIC) >= 0)
		return true;
	*ret_over = errno == ETIMEDOUT;
	return errno != ENOSYS && errno != EPERM && errno != EINVAL;
}

bool wait_words(const struct wait_word *words, size_t n, uint64_t ns)
{
	static _Atomic bool no_waitv;
	bool over;

	if (n == 1)
		return wait_one(words, ns);
	if (!no_waitv && wait_several(words, n, ns, &over))
		return over;
	no_waitv = true;
	return wait_one(words, ns < FALLBACK_NS ? ns : FALLBACK_NS);
}

void wait_wake(const _Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t wait_next_step(struct wait_step *step)
{
	uint64_t ns = step->ns ? step->ns * 2 : STEP_FIRST_NS;

	return step->ns = ns < STEP_MAX_NS ? ns : STEP_MAX_NS;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* The clock costs as much as some looks; a pause some 140 cycles on newer processors of Intel. */
bool wait_spin(struct wait_spin *spin)
{
	relax();
	if (spin->looks++ % CLOCK_LOOKS != 0)
		return true;
	return clock_monotonic_ns() < spin->until;
}

/* ---- the daemon ---- */

/* Where no other daemon follows, one try ends the connection: it comes last. */
static int come_back(struct gpushm *c, uint64_t *outage)
{
	uint64_t left = outage_left(c, outage);
	int r = -EAGAIN;

	if (c->wait_for_successor && !c->ended)
		r = hello_resume(c, 0);
	else if (left == 0)
		r = hello_reconnect(c);
	return outage_report(c, r < 0 && left > 0 ? -EAGAIN : r, outage);
}

/* Frames flow without a daemon, so an outage must not hold up anybody here: the next call goes on
 * with what this one begins. A thread that has the lock is in a request, and finds the hang-up
 * itself. A socket that waits for a daemon's accept() has not hung up. */
int wait_check_daemon(struct gpushm_buffer *b, uint64_t *outage)
{
	struct gpushm *c = b->connection;
	int r = 0;

	if (!lock_try(&c->lock, LOCK_CONNECTION))
		return 0;
	if (outage_has_begun(c))
		r = come_back(c, outage);
	else
		*outage = 0;
	lock_drop(&c->lock);
	return r == -EAGAIN ? 0 : r;
}

bool wait_misses_daemon(struct gpushm_buffer *b)
{
	struct gpushm *c = b->connection;
	bool gone;

	if (!lock_try(&c->lock, LOCK_CONNECTION))
		return false;
	gone = outage_has_begun(c);
	lock_drop(&c->lock);
	return gone;
}

/* The clock of CLOCK_REALTIME may be set meanwhile, and a mutex of glibc 2.28 knows no other. A
 * thread that only tried from time to time would seldom get a lock that others take often. */
static bool lock_in_time(struct gpushm *c, uint64_t deadline)
{
	uint64_t left;

	while ((left = clock_left_ms(deadline)) > 0) {
		uint64_t ms = clock_earlier(left, LOCK_MS_MAX);
		struct timespec until = clock_timespec(clock_realtime_ns() + ms * 1000000u);

		if (lock_take_until(&c->lock, LOCK_CONNECTION, &until))
			return true;
	}
	return lock_try(&c->lock, LOCK_CONNECTION);
}

int wait_for_daemon(struct gpushm_buffer *b, uint64_t ms, uint64_t *outage, bool *ret_busy)
{
	uint64_t end = clock_deadline(ms > ASK_MS_MIN ? ms : ASK_MS_MIN);
	struct gpushm *c = b->connection;
	int r = 0;

	*ret_busy = !lock_in_time(c, end);
	if (*ret_busy)
		return -EAGAIN;
	if (outage_has_begun(c)) {
		r = outage_report(c,
				  hello_resume(c, clock_earlier(clock_left_ms(end),
								outage_left(c, outage))),
				  outage);
	} else {
		*outage = 0;
		r = connection_settle(c, end) == -ETIMEDOUT ? -EAGAIN : 0;
	}
	lock_drop(&c->lock);
	return r;
}
