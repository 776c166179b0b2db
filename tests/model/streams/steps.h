/* SPDX-License-Identifier: MIT
 *
 * The operations on words, for the code that the checker runs: each may be a step, between which
 * other threads run. See machine.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum step_kind { STEP_LOAD, STEP_STORE, STEP_ADD, STEP_SWAP };

/* The old value; for STEP_SWAP, whether it was `old`. */
uint64_t step(enum step_kind kind, void *word, unsigned bytes, uint64_t value, uint64_t old);

#define STREAM_STEP(kind, word, value, old) \
	step(kind, (void *)(uintptr_t)(word), sizeof(*(word)), value, old)
#define stream_load(word) ((__typeof__(+*(word)))STREAM_STEP(STEP_LOAD, word, 0, 0))
#define stream_store(word, value) ((void)STREAM_STEP(STEP_STORE, word, (uint64_t)(value), 0))
#define stream_add(word, value) \
	({ (__typeof__(+*(word)))STREAM_STEP(STEP_ADD, word, (uint64_t)(value), 0); })
#define stream_swap(word, old, new) ({ STREAM_STEP(STEP_SWAP, word, new, old) != 0; })
#define STREAM_TRIES_MAX(slots) ((slots) + 1)
