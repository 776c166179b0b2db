/* SPDX-License-Identifier: MIT
 *
 * What this process has mapped: one mapping for each buffer (and access, where the kind of pool has
 * read-only mappings), counted, however often the buffer is opened. The driver makes that
 * necessary: a second import of a mempool pointer has the same address and is not counted, so that
 * the first free would unmap both.
 */
#pragma once

#include "client/gpushm.h"
#include "proto/kind.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* A pool, as client/lib/map needs it. */
struct map_pool {
	unsigned char daemon[DAEMON_ID_BYTES];
	uint32_t id;
	enum gpushm_kind kind;
	bool has_device;
	unsigned char device_uuid[UUID_BYTES];
	int numa_node;
	bool imported; /* mempool: counts as a user of the import; written by mempool.c */
};

/* The memory to map, as the reply described it. fd is the memory's, or for a mempool the pool's, or
 * -1 where the connection has no fd of the pool. */
struct map_request {
	struct map_pool *pool; /* the connection's; must live until map_pool_done() */
	uint64_t buffer;       /* id */
	uint64_t bytes, allocated_bytes;
	bool write;
	bool copy_on_write; /* a mapping that nobody shares; host memory only */
	/* Only map_fill() reads it: pinned memory is mapped for the GPU alone. Mapping it for the
	 * CPU, too, takes longer than copying it. */
	bool to_fill_from;
	int device; /* ordinal to map for, GPUSHM_OWN_DEVICE or GPUSHM_CURRENT_DEVICE */
	unsigned char record[RECORD_BYTES];
	int fd;		  /* lent: the map keeps no fd; the caller closes it */
	uid_t server_uid; /* owner that a host memfd must have */
};

struct map {
	void *device_ptr;	  /* NULL where no GPU can use it */
	void *host_ptr;		  /* NULL where the CPU can't */
	int device;		  /* CUDA ordinal of the memory's GPU; -1 */
	_Atomic bool writable;	  /* of a mempool: always */
	struct map_private *priv; /* see below */
};

/* Maps the memory, or takes another reference on the map that this process has already, unless it
 * is copy-on-write: each of those is separate.
 * *ret_device: the GPU that the caller uses it from, which may be another one than the memory's; -1
 * where none can. Checks fd: its kind, owner, size and seals. 0; -ENODEV (this process can't see
 * the device or has no driver), -EPROTO (the fd is not what the reply promised), -ENOTSUP
 * (copy-on-write of another kind than host), -ENOMEM, -EIO with gpushm_error() set. Never waits for
 * the GPU. */
int map_acquire(const struct map_request *r, struct map **ret, int *ret_device);

/* Releases a reference. Waits for the work that this process has queued on the GPUs that use the
 * map; the last reference unmaps the memory. NULL is allowed. 0, or -EIO where the driver failed
 * and the memory may still be mapped. */
int map_release(struct map *m);

/* The caller does not use its reference for a while. The last one in use unmaps the memory, and the
 * process keeps the addresses. Waits for nothing. 0, or -errno: the reference is still in use. For
 * kinds whose buffers have memory of their own, and never copy-on-write. */
int map_suspend(struct map *m);

/* The id of the buffer whose memory is at these addresses, for another reference; 0: none is. */
uint64_t map_buffer(const struct map *m);

/* The caller uses it again: maps the memory of r->fd at the same addresses, unless another
 * reference has. That may be another buffer's than before. -EAGAIN without a text: another
 * reference has mapped a third one there. Errors as of map_acquire(). After an error the reference
 * is not in use. */
int map_resume(struct map *m, const struct map_request *r);

/* map_release() of a reference that is not in use. */
int map_release_suspended(struct map *m);

/* map_release() of a parent's map in a forked child, where it is in no register. */
void map_release_inherited(struct map *m);

/* The mapped bytes: all that was allocated. */
uint64_t map_bytes(const struct map *m);

/* Waits for the work on the GPUs that use the map. 0 or -EIO. No-op for host maps. */
int map_synchronize(struct map *m);

/* Makes the mapping read-only, for all its references, where the kind can (vmm, pinned, host). 0 or
 * -errno. */
int map_protect(struct map *m);

/* Another GPU of this process may use the mapping, too, as long as it is mapped: for a copy, after
 * which the caller waits. 0; -ENODEV: it has no peer access; -EIO. */
int map_share(struct map *m, int device);

/* A connection begins and ends: the last one of the process releases the driver's contexts. */
void map_begin(void);
void map_end(void);

/* A connection ends, and all buffers that were opened through it are closed: an imported mempool is
 * destroyed with the last connection that used it. In mempool.c or nocuda.c. */
void map_pool_done(struct map_pool *pool);

/* This process's CUDA ordinal of the device with that UUID; -1 where it can't see it, or has no
 * driver. Starts the driver (cuInit, 0.2 s) on its first call. */
int map_device_ordinal(const unsigned char uuid[UUID_BYTES]);

/* The memory in bytes of this process's GPU of that ordinal; 0 where the driver fails. */
uint64_t map_device_bytes(int device);

/* ---- copies between a device's memory and the host's, or another device's ---- */

/* From map_enter() until map_leave() the thread is in a context of the GPU; -1: of none, for host
 * maps. The context is the current one if it is of that GPU, else the GPU's primary one, which is
 * made (0.3 s) if it does not exist. 0, -ENODEV or -EIO. */
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
	bool on_device; /* `host` is memory of a GPU, too */
};

/* Queues the copy on a CUstream (NULL: the legacy default stream), after map_enter(). Blocks only
 * where the driver does, for pageable memory. 0, or -EIO with gpushm_error() set. */
int map_copy(const struct map_copy *copy, void *stream);
/* Waits until the stream has done what was queued. After map_enter(). 0 or -EIO. */
int map_wait(void *stream);

/* Copies the first bytes of memory that has addresses on a GPU into a GPU's, in one piece, and
 * waits for that. 0 or -EIO. */
int map_fill(struct map *to, const struct map *from, uint64_t bytes);

/* ---- what needs the driver; for map.c only, and never called in a build without CUDA ---- */

/* Waits for the work in the thread's context, if it is of the device, and in the device's primary
 * one, if it exists. 0 or -EIO. */
int context_synchronize(int device);
/* Under process::context_lock. */
void context_release_all(void);
/* 0, or -ENODEV: that GPU can't use the memory of `owner`. */
int context_check_peer(int owner, int device);

/* ---- the kinds of pools; for client/lib/map and its tests only ---- */

/* An entry of the register of maps. */
struct map_private {
	struct map map;		  /* what the caller sees; map.priv points here */
	struct map_private *next; /* process::maps */
	const struct map_kind *kind;
	unsigned refs, used; /* used: by those that are not suspended */
	bool mapped;	     /* false: it has addresses without memory, or none yet */
	bool busy;	     /* being mapped or unmapped, without the lock */
	unsigned char daemon[DAEMON_ID_BYTES];
	uint64_t buffer;
	bool write;	    /* part of the key where the kind has read-only mappings */
	bool copy_on_write; /* never found again */
	bool to_fill_from;  /* part of the key */
	int device;	    /* ordinal of the GPU that it is mapped for; -1: the CPU alone */
	/* Bit n: GPU n uses it. More than `device` where one map serves all GPUs. */
	_Atomic uint64_t used_from;
	uint64_t shared;	   /* bit n: GPU n may use it, too */
	uint64_t bytes;		   /* mapped */
	int numa_node;		   /* pinned */
	struct map_import *import; /* mempool */
};

struct map_kind {
	bool knows_access; /* one map for each access; else one for all, and that writable */
	bool knows_device; /* one map for each GPU that it is mapped for */
	bool knows_copy_on_write;
	bool is_inherited; /* a forked child has the mapping, and can unmap it */

	/* Finds the memory's GPU (else *ret_owner stays -1) and the one to map for, and prepares
	 * what all buffers of the pool need; a kind of the driver's starts the driver. 0, or -errno
	 * with gpushm_error() set. */
	int (*prepare)(const struct map_request *r, int *ret_owner, int *ret_device);
	/* Maps the memory: at the addresses that p->map has, or sets them. An error leaves all as
	 * it was. */
	int (*map)(const struct map_request *r, struct map_private *p);
	/* Unmaps the memory, if it is mapped. keep: the addresses stay the process's; else they go.
	 * 0, or -errno where the memory may still be mapped. */
	int (*unmap)(struct map_private *p, bool keep);
	int (*protect)(struct map_private *p);
	/* NULL: no GPU has a part in it. */
	int (*share)(struct map_private *p, int device);
};

#define DECLARE_MAP(name, ...) extern const struct map_kind map_##name;
ALL_KINDS(DECLARE_MAP)
