/* SPDX-License-Identifier: MIT
 *
 * The way between this process and a buffer's memory: nothing for host memory, which threads read
 * and write where it is; a GPU, its ring, and processors near to it for the rest.
 */
#pragma once

#include "client/load/ring.h"

struct transport {
	int device;	  /* CUDA ordinal that copies to and from the buffer; -1: none */
	struct gpu *gpu;  /* owned; NULL where device is -1 */
	struct ring ring; /* owned */
	cpu_set_t cpus;	  /* near to the GPU */
	bool has_cpus;
};

/* Opens what copies through that GPU need. c: as for ring_open(). move: the calling thread moves to
 * the processors near to the GPU first, so that the ring's memory is near to it, too. 0, or
 * -ENODEV, -ENOMEM, -EIO with gpushm_error() set. */
int transport_open(struct transport *t, struct gpushm *c, int device, unsigned slots, bool move);
void transport_close(struct transport *t);

#define TRANSPORT_THREADS 12u

/* How many threads work best where nothing has to wait for a disk: 12 fill the bus; fewer on fewer
 * processors. */
unsigned transport_threads(void);
