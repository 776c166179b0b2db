/* SPDX-License-Identifier: MIT
 *
 * Mutexes that are taken in an order. Each product has an enum of its locks, a rank each, and a
 * thread that holds one takes only those of higher ranks. A build with -DGPUSHM_DEBUG_LOCKS, as
 * those with sanitizers are, ends the process where a thread does not keep to this; in others these
 * are the calls of pthread.
 *
 * A mutex may also be waited with: pthread_cond_wait() takes the same one again.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* The first ranks of each product: who calls another product comes before it. Tests link all of
 * them into one program. */
enum lock_ranks {
	LOCKS_RELAY = 100,
	LOCKS_COMMON = 200,
	LOCKS_MODELS = 300,
	LOCKS_LIBRARY = 400,
};

#ifndef GPUSHM_DEBUG_LOCKS

#define lock_take(mutex, rank) pthread_mutex_lock(mutex)
#define lock_drop(mutex) pthread_mutex_unlock(mutex)
/* Whether it was free. One that does not wait may be taken in any order. */
#define lock_try(mutex, rank) (pthread_mutex_trylock(mutex) == 0)
/* Whether it became free in time; until: CLOCK_REALTIME. */
#define lock_take_until(mutex, rank, until) (pthread_mutex_timedlock(mutex, until) == 0)
/* Before a call that may take long: none of this rank or a higher one is held. */
#define lock_assert_none_from(rank) ((void)0)

#else

#include <stdio.h>
#include <stdlib.h>

#define LOCKS_HELD_MAX 8

struct lock_held {
	const pthread_mutex_t *mutex;
	int rank;
	const char *name;
};

/* Of this thread. Weak, so that a header can define them: a program or shared library has one. */
__attribute__((weak)) _Thread_local struct lock_held locks_held[LOCKS_HELD_MAX];
__attribute__((weak)) _Thread_local unsigned n_locks_held;

static inline void lock_die(const char *what, const char *name, const char *held)
{
	fprintf(stderr, "locks: %s %s while %s is held\n", what, name, held);
	abort();
}

static inline void lock_check(const char *what, int rank, const char *name)
{
	for (unsigned i = 0; i < n_locks_held; i++)
		if (locks_held[i].rank >= rank)
			lock_die(what, name, locks_held[i].name);
}

static inline void lock_note(const pthread_mutex_t *mutex, int rank, const char *name)
{
	if (n_locks_held == LOCKS_HELD_MAX)
		lock_die("no place for", name, locks_held[0].name);
	locks_held[n_locks_held++] = (struct lock_held){ mutex, rank, name };
}

static inline void lock_take_as(pthread_mutex_t *mutex, int rank, const char *name)
{
	lock_check("taken:", rank, name);
	pthread_mutex_lock(mutex);
	lock_note(mutex, rank, name);
}

static inline bool lock_try_as(pthread_mutex_t *mutex, int rank, const char *name)
{
	bool taken = pthread_mutex_trylock(mutex) == 0;

	if (taken)
		lock_note(mutex, rank, name);
	return taken;
}

static inline bool lock_take_until_as(pthread_mutex_t *mutex, int rank, const char *name,
				      const struct timespec *until)
{
	bool taken;

	lock_check("taken:", rank, name);
	taken = pthread_mutex_timedlock(mutex, until) == 0;
	if (taken)
		lock_note(mutex, rank, name);
	return taken;
}

static inline void lock_drop(pthread_mutex_t *mutex)
{
	unsigned i = n_locks_held;

	while (i > 0 && locks_held[i - 1].mutex != mutex)
		i--;
	if (i == 0)
		lock_die("dropped:", "a lock that this thread does not hold", "none");
	for (n_locks_held--; i <= n_locks_held; i++)
		locks_held[i - 1] = locks_held[i];
	pthread_mutex_unlock(mutex);
}

#define lock_take(mutex, rank) lock_take_as(mutex, rank, #rank)
#define lock_try(mutex, rank) lock_try_as(mutex, rank, #rank)
#define lock_take_until(mutex, rank, until) lock_take_until_as(mutex, rank, #rank, until)
#define lock_assert_none_from(rank) lock_check("a call that may take long, not from", rank, #rank)

#endif

static inline void lock_end_guard(pthread_mutex_t **mutex)
{
	lock_drop(*mutex);
}

/* Takes a lock until the end of the block. */
#define lock_guard(mutex, rank)                                                     \
	__attribute__((cleanup(lock_end_guard))) pthread_mutex_t *guard_ = (mutex); \
	lock_take(guard_, rank)
