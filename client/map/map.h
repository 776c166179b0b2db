/* SPDX-License-Identifier: MIT
 *
 * What this process has mapped: one import for each buffer (and access, where the kind knows
 * access), counted, however often the buffer is opened. The driver gives the same address for a
 * second import of a mempool pointer and does not count it: the first free would unmap both.
 */
#ifndef GPUSHM_CLIENT_MAP_MAP_H
#define GPUSHM_CLIENT_MAP_MAP_H

#include "client/gpushm.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* A pool as its maps see it. */
struct map_pool {
	unsigned char daemon[DAEMON_ID_BYTES];
	uint32_t id;
	enum gpushm_kind kind;
	bool has_device;
	unsigned char device_uuid[UUID_BYTES];
	int numa_node;
};

/* What a reply told of the memory to map. fd is the memory's, or for a mempool the pool's, or -1
 * where the connection has been given the pool's fd before. */
struct map_request {
	const struct map_pool *pool;
	uint64_t buffer; /* id */
	uint64_t bytes, allocated_bytes;
	bool write;
	int device; /* ordinal to map for, or GPUSHM_OWN_DEVICE */
	unsigned char record[RECORD_BYTES];
	int fd;		  /* lent: the map dups or imports what it keeps; the caller closes it */
	uid_t server_uid; /* owner that a host memfd must have */
};

struct map {
	void *device_ptr; /* NULL where no GPU can use it */
	void *host_ptr;	  /* NULL where the CPU can't */
	int device;	  /* CUDA ordinal of the memory's GPU; -1 */
	bool writable;
	struct map_private *priv; /* the registry's and the kind's own */
};

/* Maps the memory, or takes another reference on the map that is there already. Checks fd: its
 * kind, owner, size and seals. 0; -ENODEV (this process can't see the device or has no driver),
 * -EPROTO (the fd is not what was promised), -ENOMEM, -EIO with gpushm_error() set. Never blocks on
 * the GPU. */
int map_acquire(const struct map_request *r, struct map **ret);

/* Gives a reference back. The last one waits for the work that this process has queued on the
 * device, unmaps, and lets go of the memory. NULL is allowed. 0, or -EIO where the driver failed
 * (it is unmapped as far as can be). */
int map_release(struct map *m);

/* Waits for the GPU work of the context that the map is used from. 0 or -EIO. No-op for host maps.
 */
int map_synchronize(struct map *m);

/* Makes the mapping read-only, where the kind can (vmm, pinned, host). Only if this is its sole
 * reference or all have agreed. 0 or -errno. */
int map_protect(struct map *m);

#endif
