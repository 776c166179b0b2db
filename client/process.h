/* SPDX-License-Identifier: MIT
 *
 * What the library has once a process and must not carry over a fork().
 */
#ifndef GPUSHM_CLIENT_PROCESS_H
#define GPUSHM_CLIENT_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct map_entry;
struct map_import;

/* All zero in a new process, and again in a forked child: a zeroed mutex or condition is an
 * unlocked one in glibc and in musl, and a NULL list is empty. */
struct process {
	_Atomic uint64_t generation; /* 0: not asked for yet */
	pthread_mutex_t map_lock;    /* maps, and every entry's state and count */
	pthread_cond_t map_changed;
	struct map_entry *maps;
	pthread_mutex_t import_lock;
	struct map_import *imports; /* mempools; kept until the process ends */
	pthread_mutex_t cuda_lock;
};

/* The process's one; NULL where there is no memory for it. No system call after the first. */
struct process *process(void);

/* Another number in every process that forked from another: never 0, 0 where process() is NULL. */
uint64_t process_generation(void);

#endif
