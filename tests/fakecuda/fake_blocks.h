/* SPDX-License-Identifier: MIT
 *
 * Divides a pool's memory into blocks. The first free block that is large enough is taken, so a
 * freed block is used again at once, as by the driver, with its old contents.
 */
#pragma once

#include "proto/base/list.h"

#include <stdint.h>

#define BLOCK_STEP 4096ull /* a page, so that free blocks can be closed to the CPU */

struct blocks {
	struct list all; /* struct block::link, by offset, without gaps; empty before the first */
	uint64_t size;
	uint64_t used; /* bytes */
};

void blocks_init(struct blocks *b, uint64_t size);
void blocks_done(struct blocks *b);
/* Returns 0, or -ENOMEM: no space, or no memory for the list. */
int blocks_take(struct blocks *b, uint64_t size, uint64_t *ret_offset);
void blocks_give(struct blocks *b, uint64_t offset);
/* The end of the last block in use. */
uint64_t blocks_end(const struct blocks *b);
