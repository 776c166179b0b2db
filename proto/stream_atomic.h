/* SPDX-License-Identifier: MIT
 *
 * The operations on the words of a stream. All are sequentially consistent: the protocol's claims
 * are hazard pointers, of which both sides write a word and then read the other side's. The checker
 * in tests/model has operations of its own, in the file STREAM_STEPS, and changes the thread
 * between them.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#ifdef STREAM_STEPS
#include STREAM_STEPS
#else
#define stream_load(word) atomic_load(word)
#define stream_store(word, value) atomic_store(word, value)
#define stream_add(word, value) atomic_fetch_add(word, value)
/* Whether the word was `old`, and is `new` now. */
#define stream_swap(word, old, new) atomic_compare_exchange_strong(word, &(uint64_t){ old }, new)
#endif
