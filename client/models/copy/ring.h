/* SPDX-License-Identifier: MIT
 *
 * A ring: slots of pinned memory between threads and a GPU, and one stream of copies, which it
 * owns. The memory is lent. It knows nothing of files and buffers, and queues no copy: its users
 * do. Copies end in the order in which they were queued, and the slot that was given back first is
 * the first one that is free.
 *
 * Each copy costs the GPU some microseconds beside its bytes, so a slot has up to four blocks,
 * which as many threads fill at the same time; but all slots together must stay in the processor's
 * cache (tests/bench/RESULTS.md has the figures).
 */
#pragma once

#include "client/models/copy/blocks.h"
#include "client/models/copy/gpu.h"
#include "client/models/copy/source.h"

#include <pthread.h>

#define RING_BLOCKS_MAX 4u /* of a slot */
#define RING_THREADS_MAX 64u
#define RING_SLOTS_MAX (2u * RING_THREADS_MAX)

#define SLOT_BYTES (BLOCK_BYTES + SOURCE_SLACK)			  /* of a slot of one block */
#define RING_BYTES(threads) ((size_t)SLOT_BYTES * 2u * (threads)) /* that so many threads need */

struct slot {
	char *memory;
	unsigned number; /* of its mark in the queue */
	bool open;	 /* a thread has it, or some: */
	uint64_t group;	 /* whose blocks they fill it with */
	unsigned filled; /* blocks of it */
};

struct ring {
	struct gpu *gpu;	 /* lent; NULL: the ring is not open */
	struct gpu_queue *queue; /* owned */
	unsigned blocks;	 /* that a slot has room for */
	struct slot slots[RING_SLOTS_MAX];
	unsigned n;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct slot *idle[RING_SLOTS_MAX]; /* that nobody has, the next one first; under lock */
	unsigned first, n_idle;		   /* of idle, which goes round; under lock */
	bool stopped;			   /* under lock */
};

/* Without slots. The thread has the GPU's context current. 0, or -ENOMEM, -EIO with gpushm_error()
 * set. */
int ring_open(struct ring *r, struct gpu *gpu);
/* When no copy is on its way. A ring that is not open is allowed. */
void ring_close(struct ring *r);

/* A piece of pinned memory. */
struct ring_piece {
	char *memory;
	size_t bytes;
};

/* Cuts the memory into new slots: of one block, with room for direct reads (SOURCE_SLACK), or of as
 * many as `most` whole ones, if so many threads find enough slots then. Nobody has a slot, and no
 * copy is on its way. The thread has the GPU's context current. 0, or -ENOMEM, -EIO with
 * gpushm_error() set. */
int ring_cut(struct ring *r, const struct ring_piece *pieces, size_t n, unsigned threads,
	     unsigned most);

/* The slot of a group of blocks: the one that another thread has begun to fill with that group, or
 * the next one, once its copies are done. Threads come for the groups in their order, and fill
 * what they have before they come again; with slots of one block a thread may have two. A thread
 * that does not fill what it has stops the ring. NULL: the ring was stopped. 0, or -EIO with
 * gpushm_error() set. */
int ring_join(struct ring *r, uint64_t group, struct slot **ret);
/* Another block of the slot is filled. Whether all `blocks` of its group are: then this thread
 * queues the copies, marks the slot and gives it back. */
bool ring_filled(struct ring *r, struct slot *s, unsigned blocks);
/* What was queued so far are the slot's copies. 0, or -EIO with gpushm_error() set. */
int ring_mark(struct ring *r, struct slot *s);
/* Waits for the slot's copies. Likewise. */
int ring_wait(struct ring *r, struct slot *s);
void ring_give(struct ring *r, struct slot *s);

/* No thread waits for a slot any more, until the ring is cut again. */
void ring_stop(struct ring *r);
/* Waits for all copies. 0, or -EIO with gpushm_error() set. */
int ring_drain(struct ring *r);
