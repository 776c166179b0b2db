/* SPDX-License-Identifier: MIT
 *
 * The operations on the words of a stream, between which the thread gives up its processor now and
 * then, so that others come in between.
 */
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline void yield_sometimes(void)
{
	static _Thread_local uint32_t seed;

	seed = seed * 1664525u + 1013904223u + (seed == 0 ? (uint32_t)(uintptr_t)&seed : 0);
	if (seed >> 28 == 0)
		sched_yield();
}

#define stream_load(word) (yield_sometimes(), atomic_load(word))
#define stream_store(word, value) (yield_sometimes(), atomic_store(word, value))
#define stream_put(word, value) \
	(yield_sometimes(), atomic_store_explicit(word, value, memory_order_release))
#define stream_add(word, value) (yield_sometimes(), atomic_fetch_add(word, value))
static inline bool stream_swap(_Atomic uint64_t *word, uint64_t old, uint64_t new)
{
	yield_sometimes();
	return atomic_compare_exchange_strong(word, &old, new);
}
#define STREAM_TRIES_MAX(slots) (1000 + 4 * (slots))
