/* SPDX-License-Identifier: MIT
 *
 * Pools, our own and imported ones.
 */
#pragma once

#include "tests/fakecuda/fake_blocks.h"
#include "tests/fakecuda/fake_memory.h"

struct mempool {
	struct list link; /* mempools */
	struct memory *memory;
	unsigned char *base;  /* address of its first byte; open to the CPU where a pointer is */
	struct blocks blocks; /* our own */
	uint64_t reserved_high, used_high, threshold;
	int lock_fd; /* imported: an open file of its own, whose locks show what is in use here */
	unsigned long pointers; /* still alive */
	bool exportable, exported, destroyed;
	unsigned char access[GPUS_MAX];
};

/* The pool of that handle, or NULL where it is none (any more). */
struct mempool *mempool_find(CUmemoryPool handle);
unsigned long mempool_alive(void);

/* Finds space for another block: claims more of the GPU if necessary. OUT_OF_MEMORY. */
CUresult mempool_take(struct mempool *p, uint64_t bytes, uint64_t *ret_offset);
/* Called when a pointer is freed: a destroyed pool ends with its last pointer. */
void mempool_drop_pointer(struct mempool *p);
