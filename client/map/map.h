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
	bool imported; /* mempool: counts as a user of the import; the mapping room's own */
};

/* What a reply told of the memory to map. fd is the memory's, or for a mempool the pool's, or -1
 * where the connection has been given the pool's fd before. */
struct map_request {
	struct map_pool *pool; /* the connection's; must live until map_pool_done() */
	uint64_t buffer;       /* id */
	uint64_t bytes, allocated_bytes;
	bool write;
	int device; /* ordinal to map for, or GPUSHM_OWN_DEVICE */
	unsigned char record[RECORD_BYTES];
	int fd;		  /* lent: the map dups or imports what it keeps; the caller closes it */
	uid_t server_uid; /* owner that a host memfd must have */
};

struct map {
	void *device_ptr;	  /* NULL where no GPU can use it */
	void *host_ptr;		  /* NULL where the CPU can't */
	int device;		  /* CUDA ordinal of the memory's GPU; -1 */
	_Atomic bool writable;	  /* of a mempool: always */
	struct map_private *priv; /* the registry's and the kind's own */
};

/* Maps the memory, or takes another reference on the map that is there already. *ret_device: the
 * GPU that the caller uses it from, which need not be the memory's own; -1 where none can. Checks
 * fd: its kind, owner, size and seals. 0; -ENODEV (this process can't see the device or has no
 * driver), -EPROTO (the fd is not what was promised), -ENOMEM, -EIO with gpushm_error() set. Never
 * blocks on the GPU. */
int map_acquire(const struct map_request *r, struct map **ret, int *ret_device);

/* Gives a reference back. Waits for the work that this process has queued on the GPUs that it is
 * used from; the last one unmaps, and lets go of the memory. NULL is allowed. 0, or -EIO where the
 * driver failed (it is unmapped as far as can be). */
int map_release(struct map *m);

/* What is mapped, which is what was allocated. */
uint64_t map_bytes(const struct map *m);

/* Waits for the work on the GPUs that the map is used from. 0 or -EIO. No-op for host maps. */
int map_synchronize(struct map *m);

/* Makes the mapping read-only, where the kind can (vmm, pinned, host). Only if this is its sole
 * reference or all have agreed. 0 or -errno. */
int map_protect(struct map *m);

/* A connection begins, and ends: the process lets go of the driver's contexts with its last one. */
void map_begin(void);
void map_end(void);

/* The connection ends, all buffers that were opened through it are closed: what was imported for
 * its pool is let go with the last connection that used it. */
void map_pool_done(struct map_pool *pool);

/* This process's CUDA ordinal of the device with that UUID; -1 where it can't see it, or has no
 * driver. Starts the driver (cuInit, 0.2 s) on its first call. */
int map_device_ordinal(const unsigned char uuid[UUID_BYTES]);

/* The memory of this process's GPU of that ordinal; 0 where it can't be told. */
uint64_t map_device_bytes(int device);

/* ---- copies between a device's memory and the host's ---- */

/* The thread is in a context of the GPU, from map_enter() until map_leave(). -1: of none; host maps
 * need neither. 0, -ENODEV or -EIO. */
struct map_entered {
	bool pushed; /* else the thread was in a context of the device already */
};
int map_enter(int device, struct map_entered *ret);
void map_leave(struct map_entered *e);

/* `height` rows of `width` bytes, `*_pitch` bytes from one row to the next (not used where height
 * is 1; else at least width). */
struct map_copy {
	void *device, *host;
	size_t width, height, device_pitch, host_pitch;
	bool to_host;
};

/* Queues the copy on a CUstream (NULL: the legacy default stream), within map_enter(). Blocks only
 * where the driver does, for pageable memory. 0, or -EIO with gpushm_error() set. */
int map_copy(const struct map_copy *copy, void *stream);
/* Waits until the stream has done what was queued. Within map_enter(). 0 or -EIO. */
int map_wait(void *stream);

#endif
