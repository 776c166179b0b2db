/* SPDX-License-Identifier: MIT
 *
 * A lane: what one thread needs to copy between files and a GPU. Two slots of pinned memory, so
 * that it reads into one while the GPU copies from the other, and a queue of copies. Slots are
 * small: a block is still in the processor's cache when it is hashed.
 */
#pragma once

#include "client/load/digest.h"
#include "client/load/gpu.h"
#include "client/load/source.h"

#define SLOT_BYTES (BLOCK_BYTES + SOURCE_SLACK)
#define LANE_SLOTS 2u
#define LANE_BYTES ((size_t)LANE_SLOTS * SLOT_BYTES)

struct lane {
	struct gpu *gpu;	 /* lent; NULL: it is not open */
	struct gpu_queue *queue; /* owned */
	char *memory;		 /* lent, by its user: LANE_BYTES, pinned */
	unsigned at;		 /* the slot that is used now */
};

/* Without memory. The thread has the GPU's context current. 0, or -ENOMEM, -EIO with gpushm_error()
 * set. */
int lane_open(struct lane *l, struct gpu *gpu);
/* From any thread, after lane_drain(). A lane that is not open is allowed. */
void lane_close(struct lane *l);

/* Goes on to the next slot, and waits until the copies that were marked in it are done. 0, or -EIO
 * with gpushm_error() set. */
int lane_next(struct lane *l, char **ret);
/* Waits for all copies. */
int lane_drain(struct lane *l);
