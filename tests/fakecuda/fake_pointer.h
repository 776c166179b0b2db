/* SPDX-License-Identifier: MIT
 *
 * The pointers that cuMemFree accepts: pointers of a pool, allocated here or imported, and
 * cuMemAlloc's.
 */
#pragma once

#include "tests/fakecuda/fake_mempool.h"
#include "tests/fakecuda/fake_range.h"

#define NO_RECORD UINT32_MAX

struct pointer {
	struct range range;
	struct mempool *mempool; /* NULL: cuMemAlloc's */
	struct memory *memory;	 /* cuMemAlloc's own */
	uint64_t offset, bytes;	 /* in the pool; whole pages */
	uint32_t record;	 /* line of the pool's table, or NO_RECORD */
};

/* The pointer of exactly that address, or NULL. */
struct pointer *pointer_at(uintptr_t address);
/* A pool's, at that offset; opens its pages to the CPU. OUT_OF_MEMORY. */
CUresult pointer_new(struct mempool *p, uint64_t offset, uint64_t size, struct pointer **ret);
/* Whole pages. */
uint64_t pointer_round(uint64_t size);

/* cuMemAlloc's memory. */
void allocation_free(struct pointer *it);

/* The exporter frees the pointer: its record is stale from now on. Returns whether another process
 * still has it imported. */
bool record_drop(struct pointer *it);
/* The importer frees it. */
void record_unlock(struct pointer *it);
