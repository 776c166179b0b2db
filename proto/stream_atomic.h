/* SPDX-License-Identifier: MIT
 *
 * The operations on the words of a stream. All are sequentially consistent: the protocol's claims
 * are hazard pointers, of which both sides write a word and then read the other side's. Only
 * stream_put() is weaker, a release: it is for words behind which no word of others is read before
 * a stream_store(), and spares the wait for the cache line. The checker
 * in tests/model has operations of its own, in the file STREAM_STEPS, and changes the thread
 * between them.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef STREAM_STEPS
#include STREAM_STEPS
#ifndef stream_put
#define stream_put(word, value) stream_store(word, value)
#endif
#else
#define stream_load(word) atomic_load(word)
#define stream_store(word, value) atomic_store(word, value)
#define stream_put(word, value) atomic_store_explicit(word, value, memory_order_release)
#define stream_add(word, value) atomic_fetch_add(word, value)
/* Whether the word was `old`, and is `new` now. A function: cppcheck does not understand a compound
 * literal in a condition. */
static inline bool stream_swap(_Atomic uint64_t *word, uint64_t old, uint64_t new)
{
	return atomic_compare_exchange_strong(word, &old, new);
}
/* How often a reader looks for a frame that was to be found, unless the words are rubbish: each
 * failure means that the producer has published another one, which wakes who sleeps, or that
 * another member has taken this one. */
#define STREAM_TRIES_MAX(slots) (1000 + 4 * (slots))
#endif

/* Brings the cache line of a word to this processor, for a store that is near. */
static inline void stream_fetch(const void *word)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)word));
#else
	__builtin_prefetch(word, 1);
#endif
}
