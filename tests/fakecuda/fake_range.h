/* SPDX-License-Identifier: MIT
 *
 * The addresses that the driver knows: what lies behind each, and which GPU may do what to it.
 */
#pragma once

#include "proto/base/list.h"
#include "tests/fakecuda/fake_state.h"

#include <stdint.h>

enum range_kind {
	RANGE_MAPPING,	  /* cuMemMap */
	RANGE_POINTER,	  /* of a pool */
	RANGE_ALLOCATION, /* cuMemAlloc */
	RANGE_HOST,	  /* cuMemHostRegister, cuMemHostAlloc */
	RANGE_KINDS,
};

/* A member of what it describes. access[] holds CUmemAccess_flags by physical GPU. */
struct range {
	struct list link;
	enum range_kind kind;
	uintptr_t start;
	size_t size;		/* bytes, exactly as asked for: one more is out of bounds */
	unsigned char *alias;	/* where the driver itself reads and writes */
	const void *pool;	/* CUmemoryPool, or NULL */
	bool allocated;		/* of the host's: by cuMemHostAlloc */
	CUmemLocation location; /* id: physical GPU or node */
	unsigned char access[GPUS_MAX];
};

void range_insert(struct range *r);
void range_drop(struct range *r);
/* The range with that address in it, or NULL. */
struct range *range_find(uintptr_t address);
/* The range that overlaps these bytes, or NULL. */
struct range *range_overlap(uintptr_t address, size_t size);
unsigned long range_count(enum range_kind kind);
/* Gives all pointers of a pool that access. */
void range_set_access(const void *pool, const unsigned char access[GPUS_MAX]);

/* Whether a GPU may read, or write, all these bytes. Mappings that lie side by side are one. */
bool range_allows(uintptr_t address, size_t size, unsigned int gpu, bool write);
/* Where the driver finds the byte, and how many follow it there. Of allowed bytes only. */
unsigned char *range_at(uintptr_t address, size_t *ret_run);
