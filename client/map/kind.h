/* SPDX-License-Identifier: MIT
 *
 * What a kind of pool must do so that its memory can be mapped, and what is kept of a map.
 */
#ifndef GPUSHM_CLIENT_MAP_KIND_H
#define GPUSHM_CLIENT_MAP_KIND_H

#include "client/map/map.h"

struct map_private {
	struct map map;		  /* what is given out; map.priv points here */
	struct map_private *next; /* state::maps */
	const struct map_kind *kind;
	unsigned refs;
	bool busy; /* being mapped or unmapped, without the lock */
	unsigned char daemon[DAEMON_ID_BYTES];
	uint64_t buffer;
	bool write; /* of the key; where the kind knows access */
	int device; /* ordinal that it is mapped for; -1: the host's alone */
	/* Bit n: GPU n uses it. Others than `device` where one map is for all of them. */
	_Atomic uint64_t used_from;
	uint64_t bytes; /* mapped */
	int numa_node;	/* pinned */
};

struct map_kind {
	bool knows_access; /* one map for each access; else one for all, and that writable */
	bool knows_device; /* one map for each device that it is mapped for */

	/* Finds the ordinal to map for, and makes ready what all buffers of the pool need. 0, or
	 * -errno with gpushm_error() set. */
	int (*prepare)(const struct map_request *r, int *ret_device);
	/* Maps: sets the pointers and the owner's ordinal in p->map. On an error nothing is left.
	 */
	int (*map)(const struct map_request *r, struct map_private *p);
	/* 0, or -errno where the memory may still be mapped. */
	int (*unmap)(struct map_private *p);
	int (*protect)(struct map_private *p);
	/* Waits for this process's work on the GPUs that use it. */
	int (*synchronize)(const struct map_private *p);
};

extern const struct map_kind map_host, map_pinned, map_vmm, map_mempool;

#endif
