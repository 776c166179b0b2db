/* SPDX-License-Identifier: MIT
 *
 * What the library has once a process, and what a forked child must not inherit.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct deferred;
struct map_private;
struct map_import;

/* Deferred cleanup (defer.h), oldest first. */
struct defer_queue {
	struct deferred *first, *last;
	_Atomic size_t count;
	uint64_t bytes;
	unsigned sections; /* gpushm_defer_cleanup() calls without their gpushm_resume_cleanup() */
	bool limits_known;
	unsigned max_count;
	double max_ratio;
};

/* All zero in a new process, and again in a forked child: a zeroed mutex or condition is an
 * unlocked one in glibc and in musl, and a NULL list is empty. */
struct process {
	_Atomic uint64_t generation; /* 0: not numbered yet */
	pthread_mutex_t map_lock;    /* of maps, and of each entry's state and count */
	pthread_cond_t map_changed;
	struct map_private *maps;
	pthread_mutex_t import_lock;
	struct map_import *imports;   /* mempools; under import_lock */
	pthread_mutex_t cuda_lock;    /* of starting the driver */
	pthread_mutex_t context_lock; /* of the contexts that are retained */
	unsigned connections;	      /* under context_lock */
	bool has_contexts;	      /* that are retained; likewise */
	pthread_mutex_t defer_lock;
	struct defer_queue deferred; /* under defer_lock */
	_Atomic unsigned park;	     /* gpushm_may_park(): 1: promised; 2: it may not be parked */
	_Atomic bool park_asked;     /* it is asked to suspend all */
	pthread_mutex_t inherited_lock; /* in a child: of all buffers that its parent had */
};

extern struct process *_Atomic process_page; /* NULL until process_make() */
struct process *process_make(void);

/* This process's one; NULL where there is no memory for it. A system call the first time only. */
static inline struct process *process(void)
{
	struct process *p = process_page;

	return p ? p : process_make();
}

uint64_t process_number(void); /* for process_generation() */

/* A number that differs between a process and its forked children; 0 only if process() fails. */
static inline uint64_t process_generation(void)
{
	struct process *p = process();
	uint64_t seen = p ? atomic_load(&p->generation) : 0;

	return seen ? seen : process_number();
}
