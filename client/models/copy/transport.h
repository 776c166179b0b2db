/* SPDX-License-Identifier: MIT
 *
 * The way between this process and a GPU's memory: the GPU, processors near to it, and a ring of
 * slots for its threads. Host memory needs none of this: threads read and write it where it is.
 */
#pragma once

#include "client/models/copy/ring.h"
#include "gpushm_records.h"

#define TRANSPORT_PINNED_MAX RING_THREADS_MAX /* a save adds memory for each larger part */

/* A piece of pinned memory, for the slots of some threads. */
struct pinned {
	char *memory;
	uint64_t bytes;
	struct gpushm_buffer *buffer; /* owned: of a pinned pool; NULL: the memory is our own */
};

struct transport {
	int device;	 /* CUDA ordinal that copies to and from the buffer */
	struct gpu *gpu; /* owned; NULL: it is not open */
	struct gpushm *c;
	char pool[64];	/* of c, where slots take their memory; "": it is new memory */
	cpu_set_t cpus; /* near to the GPU */
	bool has_cpus;
	struct pinned pinned[TRANSPORT_PINNED_MAX]; /* the slots' memory */
	unsigned n_pinned;
	unsigned threads; /* that there is memory for */
	struct ring ring;
};

/* Starts the driver. 0, or -ENODEV, -ENOMEM, -EIO with gpushm_error() set. */
int transport_open(struct transport *t, int device);
void transport_close(struct transport *t);

/* Slots will take their memory from a pinned pool of the daemon, if there is one among these that
 * the user may create in. */
void transport_set_pools(struct transport *t, struct gpushm *c, struct gpushm_pool *const *pools,
			 size_t n);

/* Takes memory for so many threads, at most RING_THREADS_MAX, unless there is enough: 4 ms for 12
 * from a pool, 6 ms where it must be pinned first. 0, or -ENOMEM, -EIO with gpushm_error() set. */
int transport_reserve(struct transport *t, unsigned threads);

/* Cuts the ring for so many threads, for which there is memory, as ring_cut() does. Nobody uses it.
 * Likewise. */
int transport_cut(struct transport *t, unsigned threads, unsigned blocks);

/* A thread enters the GPU's context, and gets the ring. transport_leave() waits for all copies, and
 * must be called after an error, too. 0, or -ENOMEM, -EIO with gpushm_error() set. */
int transport_enter(struct transport *t, struct ring **ret);
/* NULL is allowed. */
int transport_leave(struct ring *ring);
