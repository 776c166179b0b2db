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
/* Lanes that share a piece of memory. A pool keeps 10 freed buffers by default, for the next load.
 */
#define TRANSPORT_LANES_EACH 2u

struct transport {
	int device;	 /* CUDA ordinal that copies to and from the buffer */
	struct gpu *gpu; /* owned; NULL: it is not open */
	struct gpushm *c;
	char pool[64];	/* where lanes take their memory; "": the driver's */
	cpu_set_t cpus; /* near to the GPU */
	bool has_cpus;
	/* Taken and opened by the first threads that need them. */
	struct pinned pinned[TRANSPORT_LANES_MAX / TRANSPORT_LANES_EACH];
	struct lane lanes[TRANSPORT_LANES_MAX];
};

/* Starts the driver. Lanes will take their memory from a pinned pool of the daemon, if there is one
 * that this user may create in. c: NULL is allowed. 0, or -ENODEV, -ENOMEM, -EIO with
 * gpushm_error() set. */
int transport_open(struct transport *t, struct gpushm *c, int device);
void transport_close(struct transport *t);

/* A thread enters the GPU's context and gets the lane of its number, which the first thread of
 * that number opens. transport_leave() waits for the lane's copies, and must be called
 * after an error, too. 0, or -ENOMEM, -EIO with gpushm_error() set. */
int transport_enter(struct transport *t, unsigned thread, struct lane **ret);
int transport_leave(struct transport *t, struct lane *l);

/* How many threads work best where nothing has to wait for a disk: 12 fill the bus; fewer on fewer
 * processors. */
unsigned transport_threads(void);
