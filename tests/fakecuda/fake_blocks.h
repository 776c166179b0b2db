/* SPDX-License-Identifier: MIT
 *
 * How a pool divides its memory. The first free block that is large enough is taken: a freed one
 * is used again at once, as by the driver, and what it held is what the next tenant finds.
 */
#ifndef GPUSHM_TESTS_FAKECUDA_BLOCKS_H
#define GPUSHM_TESTS_FAKECUDA_BLOCKS_H

#include "proto/base/list.h"

#include <stdint.h>

#define BLOCK_STEP 4096ull /* a page, so that what is free can be closed to the CPU */

struct blocks {
	struct list all; /* struct block::link, by offset, without gaps; empty before the first */
	uint64_t size;
	uint64_t used; /* bytes */
};

void blocks_init(struct blocks *b, uint64_t size);
void blocks_done(struct blocks *b);
/* 0, -ENOMEM (no room, or none for the bookkeeping). */
int blocks_take(struct blocks *b, uint64_t size, uint64_t *ret_offset);
void blocks_give(struct blocks *b, uint64_t offset);
/* End of the last block that is taken. */
uint64_t blocks_end(const struct blocks *b);

#endif
