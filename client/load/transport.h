/* SPDX-License-Identifier: MIT
 *
 * The way between this process and a GPU's memory: the GPU, processors near to it, and a lane for
 * each thread. Host memory needs none of this: threads read and write it where it is.
 */
#pragma once

#include "client/load/lane.h"
#include "client/load/pinned.h"

#define TRANSPORT_THREADS 12u
#define TRANSPORT_LANES_MAX 64u
#define TRANSPORT_PINNED_MAX TRANSPORT_LANES_MAX /* a save adds lanes for each larger part */

struct transport {
	int device;	 /* CUDA ordinal that copies to and from the buffer */
	struct gpu *gpu; /* owned; NULL: it is not open */
	struct gpushm *c;
	char pool[64];	/* of c, where lanes take their memory; "": it is new memory */
	cpu_set_t cpus; /* near to the GPU */
	bool has_cpus;
	struct pinned pinned[TRANSPORT_PINNED_MAX]; /* the lanes' memory */
	unsigned n_pinned;
	struct lane lanes[TRANSPORT_LANES_MAX];
	unsigned n_lanes, n_queues; /* lanes that are open, and those that have at least a queue */
};

/* Starts the driver. 0, or -ENODEV, -ENOMEM, -EIO with gpushm_error() set. */
int transport_open(struct transport *t, int device);
void transport_close(struct transport *t);

/* Lanes will take their memory from a pinned pool of the daemon, if there is one among these that
 * the user may create in. */
void transport_set_pools(struct transport *t, struct gpushm *c, const struct gpushm_pool *pools,
			 size_t n);

/* Opens lanes until there are so many, at most TRANSPORT_LANES_MAX: 4 ms for 12, or 20 ms where
 * their memory must be pinned first. 0, or -ENOMEM, -EIO with gpushm_error() set; those that were
 * opened stay. */
int transport_lanes(struct transport *t, unsigned n);

/* A thread enters the GPU's context and gets the lane of its number, which is open.
 * transport_leave() waits for the lane's copies, and must be called after an error, too. 0, or
 * -ENOMEM, -EIO with gpushm_error() set. */
int transport_enter(struct transport *t, unsigned thread, struct lane **ret);
int transport_leave(struct transport *t, struct lane *l);

/* How many threads work best where nothing has to wait for a disk: 12 fill the bus; fewer on fewer
 * processors. */
unsigned transport_threads(void);
