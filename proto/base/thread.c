/* SPDX-License-Identifier: MIT */
#include "proto/base/thread.h"

#include "proto/base/clock.h"

#include <signal.h>

int thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	int err;

	/* A thread inherits its creator's mask, so that at no moment it can take a signal. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(ret, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

int thread_start_detached(void *(*run)(void *), void *arg)
{
	pthread_t thread;
	int r = thread_start(&thread, run, arg);

	if (r == 0)
		pthread_detach(thread);
	return r;
}

void thread_cond_init(pthread_cond_t *ret)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(ret, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
	const struct timespec deadline = clock_timespec(until_ns);

	return pthread_cond_timedwait(cond, lock, &deadline) == 0;
}
