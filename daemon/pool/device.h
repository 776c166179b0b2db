/* SPDX-License-Identifier: MIT
 *
 * A GPU: its names, its size, its worker, and the primary context that only mempools need.
 */
#pragma once

#include "daemon/pool/worker.h"
#include "proto/limits.h"

#include <stdint.h>

struct device {
	int ordinal; /* of the driver in this process */
	unsigned char uuid[UUID_BYTES];
	char name[64];	       /* "NVIDIA H200" */
	char pci_id[16];       /* "0000:3b:00.0" */
	int numa_node;	       /* of the host beside it; -1 unknown */
	uint64_t bytes;	       /* of memory in all */
	struct worker *worker; /* owned */
	void *context;	       /* CUcontext, worker thread only; made on first use */
	struct list pools;     /* pool::device_link */
	char why[256];	       /* what happened, if it is lost; loop's thread only */
	char stuck[192];       /* text, if a driver call does not return; loop's thread only */
};

struct devices {
	struct device *items; /* owned */
	size_t n;
	char why_none[256]; /* for people: no driver, no GPU, built without CUDA */
};

/* Calls cuInit and asks for every GPU: 0.2 s, so run it on a worker. Never fails: without a driver
 * there are no devices, and why_none is set. Starts no workers. In cuda.c or nocuda.c. */
void devices_probe(struct devices *d);

/* Starts each device's worker, on the loop's thread. 0 or -errno. */
int devices_start(struct devices *d, uv_loop_t *loop);

/* Ends the workers (worker_free(), so it blocks), releases the contexts, frees the devices. May be
 * called on a zeroed struct, a half-started one, and twice. */
void devices_done(struct devices *d);

/* Releases the primary context, if there is one. Its worker must have ended. In cuda.c or nocuda.c.
 */
void device_release_context(struct device *d);

/* The device that a configuration names: "GPU-<uuid>" (a prefix is enough if only one device fits;
 * "GPU-" may be left out), a PCI id (with or without its domain) or an ordinal; empty: the first.
 * Case does not matter. NULL if no device fits, or more than one. */
struct device *devices_find(struct devices *d, const char *spec);

/* ---- counts of the calls of each function of the driver, since the daemon started ---- */

#define DRIVER_CALLS_MAX 64u

struct driver_call {
	char name[48]; /* "cuMemCreate" */
	uint64_t count, failed, ns;
};

/* Those that have been made, by any thread; a call that has not returned is not counted yet.
 * Returns their number. In cuda.c or nocuda.c. */
size_t driver_calls(struct driver_call ret[DRIVER_CALLS_MAX]);
