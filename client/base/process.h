/* SPDX-License-Identifier: MIT
 *
 * What the library has once a process and must not carry over a fork().
 */
#ifndef GPUSHM_CLIENT_BASE_PROCESS_H
#define GPUSHM_CLIENT_BASE_PROCESS_H

#include "client/base/defer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct map_private;
struct map_import;

/* All zero in a new process, and again in a forked child: a zeroed mutex or condition is an
 * unlocked one in glibc and in musl, and a NULL list is empty. */
struct state {
	_Atomic uint64_t generation; /* 0: not asked for yet */
	pthread_mutex_t map_lock;    /* maps, and every entry's state and count */
	pthread_cond_t map_changed;
	struct map_private *maps;
	pthread_mutex_t import_lock;
	struct map_import *imports;   /* mempools; under import_lock */
	pthread_mutex_t cuda_lock;    /* of the driver's start */
	pthread_mutex_t context_lock; /* of the contexts that are retained */
	unsigned connections;	      /* under context_lock */
	pthread_mutex_t defer_lock;
	struct defer_queue deferred; /* under defer_lock */
};

/* The process's one; NULL where there is no memory for it. No system call after the first. */
struct state *state(void);

/* Another number in every process that forked from another: never 0, 0 where state() is NULL. */
uint64_t state_generation(void);

#endif
