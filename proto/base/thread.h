/* SPDX-License-Identifier: MIT
 *
 * Threads with all signals blocked: signals are for the program's own threads, and a handler of the
 * application must not run in one of ours. And condition variables whose deadlines no change of the
 * time of day moves.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* 0 or -errno. */
int thread_start(pthread_t *ret, void *(*run)(void *), void *arg);
int thread_start_detached(void *(*run)(void *), void *arg);

void thread_cond_init(pthread_cond_t *ret);
/* Waits for a signal until a time of CLOCK_MONOTONIC. False: the time is over. */
bool thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);
