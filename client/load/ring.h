/* SPDX-License-Identifier: MIT
 *
 * The memory that blocks pass through on their way to or from a GPU: slots of pinned memory, some
 * for each thread. It is small, so that a block is still in the processor's cache when it is
 * hashed.
 */
#pragma once

#include "client/gpushm.h"
#include "client/load/digest.h"
#include "client/load/gpu.h"
#include "client/load/source.h"

#define SLOT_BYTES (BLOCK_BYTES + SOURCE_SLACK)
#define LANE_SLOTS 2u

struct ring {
	struct gpu *gpu;	      /* lent; NULL: the ring is not open */
	struct gpushm_buffer *buffer; /* of a pinned pool; or */
	void *pinned;		      /* of the driver */
	char *memory;
	unsigned slots;
};

/* Takes memory for that many slots: of a pinned pool of the daemon if there is one that has space
 * and that this user may create in (2 ms), else from the driver (21 ms for 64 MiB). c: NULL is
 * allowed. 0, or -ENOMEM, -EIO with gpushm_error() set. */
int ring_open(struct ring *r, struct gpushm *c, struct gpu *gpu, int device, unsigned slots);
void ring_close(struct ring *r);

/* A thread's slots and its queue of copies. */
struct lane {
	struct gpu_queue *queue; /* owned */
	char *slots[LANE_SLOTS]; /* the ring's */
	unsigned n, at;
};

/* Takes the slots of thread number `thread` of `threads`. 0, or -EIO, -ENOMEM with gpushm_error()
 * set. */
int lane_open(struct lane *l, const struct ring *r, unsigned thread, unsigned threads);
/* Waits for its copies. */
void lane_close(struct lane *l);
/* Goes on to the next slot, and waits until the copies that were marked in it are done. 0, or -EIO
 * with gpushm_error() set. */
int lane_next(struct lane *l, char **ret);
