/* SPDX-License-Identifier: MIT
 *
 * Signals are blocked except while ppoll() waits. So no signal is lost between the check of the
 * flag and the wait, and no other call is ever interrupted: the demo can stop its processes in
 * order.
 */
#include "client/examples/demo/wait.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>

static const int stop_signals[] = { SIGINT, SIGTERM, SIGHUP };
#define N_STOP_SIGNALS (sizeof(stop_signals) / sizeof(stop_signals[0]))

static volatile sig_atomic_t stopped;
static sigset_t outside; /* the original mask; ppoll() uses it */

static void on_signal(int signal)
{
	(void)signal;
	stopped = 1;
}

void wait_for_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t mask;

	sigemptyset(&mask);
	for (size_t i = 0; i < N_STOP_SIGNALS; i++) {
		sigaddset(&mask, stop_signals[i]);
		sigaction(stop_signals[i], &action, NULL);
	}
	sigprocmask(SIG_BLOCK, &mask, &outside);
	/* A write to a dead worker must fail, not kill the demo. */
	signal(SIGPIPE, SIG_IGN);
}

void wait_undo_in_child(void)
{
	for (size_t i = 0; i < N_STOP_SIGNALS; i++)
		signal(stop_signals[i], SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &outside, NULL);
}

int64_t wait_deadline(int64_t ms)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + ms;
}

int wait_fds(struct pollfd *fds, nfds_t n, int64_t deadline)
{
	int64_t left = deadline - wait_deadline(0);
	struct timespec timeout = { .tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000 };
	int r = 0;

	if (left < 0)
		return -ETIMEDOUT;
	r = ppoll(fds, n, &timeout, &outside);
	if (stopped)
		return -EINTR;
	if (r < 0)
		return -errno;
	return r == 0 ? -ETIMEDOUT : 0;
}

int wait_readable(int fd, int64_t deadline)
{
	struct pollfd poll = { .fd = fd, .events = POLLIN };

	return wait_fds(&poll, 1, deadline);
}

int wait_pause(int64_t ms, int64_t deadline)
{
	int r = 0;

	if (wait_deadline(0) > deadline)
		return -ETIMEDOUT;
	r = wait_fds(NULL, 0, wait_deadline(ms));
	return r == -ETIMEDOUT ? 0 : r;
}
