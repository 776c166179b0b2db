/* SPDX-License-Identifier: MIT
 *
 * A pool: where memory comes from; one kind, one place, one size, one set of rules. It counts what
 * is used, pending and allowed, keeps the list of deferred frees, and runs the kind's calls on a
 * worker. All functions here are for the loop's thread; none blocks.
 */
#pragma once

#include "daemon/config/pool_config.h"
#include "daemon/pool/device.h"
#include "proto/base/list.h"
#include "proto/code.h"

/* A mempool's block has this instead of an fd. */
struct pointer {
	uint64_t address;		    /* CUdeviceptr in this process */
	unsigned char record[RECORD_BYTES]; /* another process imports it by this */
};

/* One allocation of a pool, and what a client gets of it. Owned by its buffer, or by the pool while
 * it is pending. */
struct block {
	uint64_t bytes;	  /* allocated: the request rounded up to the pool's granularity */
	int fd;		  /* the memory's own; -1 for a mempool's */
	int fd_read_only; /* host, until it is sealed: the same memory, for readers; else -1 */
	/* host, until it is published: the memory's first fd, which systemd may keep and which is
	 * never lent (memfd.h); else -1 */
	int fd_original;
	struct pointer *pointer; /* owned; only for a mempool's block, else NULL */
	struct pending *pending; /* made with the block, so that freeing it needs no memory */
	bool unverified; /* an earlier daemon's; the driver was not asked whether it still exists */
};
#define BLOCK_NONE ((struct block){ .fd = -1, .fd_read_only = -1, .fd_original = -1 })

struct pool;

/* What opening a pool has found and made. The loop serves an adopted pool meanwhile, so the worker
 * writes it here, and the loop copies it when the job is done. */
struct pool_opened {
	uint64_t granularity; /* bytes; must be set */
	uint64_t max_block;   /* bytes; 0: the pool's size */
	int numa_node;
	int fd; /* mempool: the pool's own; else -1 */
};

/* What a kind must do. open, alloc, free, close and verify run on the pool's worker. */
struct pool_ops {
	enum pool_kind kind;
	bool reuses_pending; /* a freed block may serve the same uid's next CREATE of its size */
	const char *max_block_why; /* why pool::max_block is less than the pool, and what to do */

	/* Fills in *ret, which has the configured node, no fd and zeros. Makes what the kind keeps:
	 * a driver's pool, the export that makes the next ones cheap. 0, or -errno with *f filled
	 * in; then the pool has failed. */
	int (*open)(struct pool *pool, struct pool_opened *ret, struct fault *f);
	/* bytes is already rounded. 0, or -errno with *f filled in: CODE_POOL_FULL if memory ran
	 * out. */
	int (*alloc)(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f);
	/* May be NULL. Does a part of what is slow in making a block, after alloc, so that the
	 * worker serves others in between. *done is 0 before the first call. -EINPROGRESS: call it
	 * again; 0; or -errno with *f filled in, and the block is freed. */
	int (*populate)(struct pool *pool, const struct block *block, uint64_t *done,
			struct fault *f);
	/* Scrubs the block if its next owner could read it, and gives it back. The caller keeps
	 * the pointer's struct. On an error *f says why, and the block is lost to the pool: memory
	 * that may not be clean is never reused. */
	int (*free)(struct pool *pool, struct block *block, struct fault *f);
	void (*close)(struct pool *pool);
	/* Whether the memory behind an earlier daemon's fd still exists; the pool is open, of that
	 * kind and on that device. 0: yes. -ESTALE: no, the driver refuses it but takes a fresh
	 * one. Another -errno: unknown. *f is the driver's error. NULL: such memory always exists.
	 */
	int (*verify)(struct pool *pool, int fd, struct fault *f);
};

extern const struct pool_ops *const pool_kinds[]; /* NULL at the end; without CUDA: host only */

/* retired: an earlier daemon's pool which this one's configuration or driver does not have (a
 * mempool's allocator dies with its process): its buffers can be opened and freed, and new ones
 * come from another pool. */
enum pool_state { POOL_STARTING, POOL_READY, POOL_FAILED, POOL_RETIRED };

struct pool {
	struct list link;	   /* pools::all */
	uint32_t index;		   /* 0 to POOLS_MAX - 1; no two existing pools share one */
	uint32_t id;		   /* on the wire; from 1 */
	struct pool_config config; /* a copy; its lists are owned */
	const struct pool_ops *ops;
	enum pool_state state;
	char why[256]; /* of a failed pool */
	bool opened;   /* it was ready once: close what its kind keeps */
	/* Owned; what an earlier daemon knew of its device, until the device is found. */
	struct device *adopted;
	struct device *device;	 /* NULL for host */
	struct list device_link; /* device::pools */
	struct worker *worker;	 /* borrowed: the device's, or the host's */
	int numa_node;
	void *impl;  /* the kind's own; made by open, worker thread only */
	int pool_fd; /* mempool: the pool's own fd, sent with a connection's first attach; else -1
		      */
	uint64_t size, granularity, max_block; /* bytes */

	bool let_go;	  /* blocks of it stay in use after the daemon's end */
	uint64_t used;	  /* bytes of blocks that buffers have, or that are being allocated */
	uint64_t lost;	  /* bytes of blocks that could not be freed */
	bool nearly_full; /* the log says so; until less is used again */
	bool in_trouble;  /* an event says so; until it works again */
	uint64_t peak;	  /* the most of used and pending at one time */
	uint64_t pending_bytes;
	uint32_t pending_count, blocks;
	uint64_t flushed, freed; /* counts of blocks: given to the worker to free; freed since */
	struct list flushes;	 /* struct flush::link, by their number */
	struct list pending;	 /* struct pending::job, oldest first */
	struct list requests;	 /* struct pool_request::link: under way */
	struct list waiting;	 /* struct pool_request::link: for space, oldest first */
	uv_timer_t retry;	 /* tries them again */
	bool retry_now;		 /* `retry` is due at once */
	uv_timer_t aging;	 /* gives back each block that has been pending too long */

	uint32_t empty_looks; /* pools_renew(): calls since it became empty */
	bool renew_now;	      /* pools_renew() does not wait for pending-max-age */
	struct job job;	      /* opens the pool, later closes it: never both at once */
	int open_result;
	struct pool_opened found; /* of that job */
	struct fault open_fault;
	void (*on_ready)(struct pool *pool, void *arg);
	void *ready_arg;
	void (*on_failed)(void *arg); /* set after pool_new(): the pool's device is lost */
	void *failed_arg;
	bool is_adopted, closing;
	void (*on_closed)(void *arg);
	void *closed_arg;
};

/* Waits until memory has been given back; a member of the struct that waits. */
struct flush {
	struct list link; /* pool::flushes; list_drop() cancels it */
	uint64_t until;	  /* a value of pool::freed */
	uint64_t late;	  /* bit pool::index: the wait ended early, the pool's GPU is stuck */
	void (*on_done)(struct flush *f);
};

/* One allocation under way; a member of the struct that needs it. */
struct pool_request {
	struct list link; /* pool::requests */
	struct job job;
	struct pool *pool;
	uint64_t wait_ms; /* set before pool_alloc(): how long it may wait for space; UINT64_MAX:
			     no limit */
	uint64_t deadline_ms;  /* of the loop's clock */
	uint64_t asked, bytes; /* and rounded up */
	uint64_t populated;    /* of pool_ops::populate */
	uid_t uid;
	bool retried, cancelled, waiting, foreign;
	bool parked;	    /* waits until an adopted pool has been started */
	struct block block; /* on success: the request's owner owns it */
	int result;
	struct fault fault;
	void (*on_done)(struct pool_request *r);
};

/* Makes a pool and opens it on its worker. on_ready is called once, later, when the pool is ready
 * or has failed, and not after pool_close(). device is NULL for host pools, and for a GPU kind
 * whose device was not found; then the pool is failed from the start, and `why` says why (else it
 * may be NULL). worker is never NULL and outlives the pool. 0 or -errno. */
int pool_new(const struct pool_config *config, struct device *device, struct worker *worker,
	     const char *why, void (*on_ready)(struct pool *pool, void *arg), void *arg,
	     struct pool **ret);

/* Makes a pool that an earlier daemon had, before this one has asked the driver. Its buffers can be
 * opened and freed at once; allocations wait for pool_start(). known: what is known of its device;
 * NULL for host. 0 or -ENOMEM. */
int pool_adopt(const struct pool_config *config, uint32_t id, uint64_t size, uint64_t granularity,
	       const struct device *known, struct worker *worker, struct pool **ret);

/* Makes an earlier daemon's block of the pool. fd is the memory's own, or -1 with a mempool's
 * record. sealed: nobody may write to it any more. 0, and *ret owns the fd; or -errno, and the fd
 * stays the caller's. -EBADF: the fd is read-only, but the block is not sealed. */
int pool_adopt_block(struct pool *pool, uint64_t bytes, int fd, bool sealed,
		     const unsigned char *record, struct block *ret);

/* Nobody may write to a host block any more: closes the fd that allows it. */
void pool_seal_block(struct block *block);

/* All leases of a block have ended: closes the fds that were lent. Then pool_block_is_held() tells
 * whether a process still has the memory. Only host memory tells that. */
void pool_withdraw_block(const struct pool *pool, struct block *block);
bool pool_block_is_held(const struct pool *pool, const struct block *block);

/* Opens an adopted pool, as pool_new() does. */
int pool_start(struct pool *pool, const struct pool_config *config, struct device *device,
	       struct worker *worker, const char *why,
	       void (*on_ready)(struct pool *pool, void *arg), void *arg);

/* Retires an adopted pool: it allocates nothing any more, and requests that wait for
 * its start fail. */
void pool_retire(struct pool *pool, const char *why);

/* Gives back what is pending, and closes the kind on the worker. All blocks must be gone and all
 * requests cancelled; those under way are waited for. on_closed may be NULL; the pool is freed
 * after it. */
void pool_close(struct pool *pool, void (*on_closed)(void *arg), void *arg);

/* Whether the pool is ready and has nothing: no block, and no work under way. */
bool pool_is_empty(const struct pool *pool);

/* Whether a process of that user, with these sorted groups, may create in the pool. */
bool pool_allows(const struct pool *pool, uid_t uid, const gid_t *gids, size_t n_gids);

/* What a buffer of that size takes of the pool. A pool that has failed may not know its step. */
static inline uint64_t pool_round(const struct pool *pool, uint64_t bytes)
{
	uint64_t step = pool->granularity ? pool->granularity : 1;

	return bytes + (step - bytes % step) % step;
}

/* Takes over what a reload may change: the users of the pool, and when pending memory is given
 * back. 0 or -ENOMEM. */
int pool_reload(struct pool *pool, const struct pool_config *fresh);

/* The fd to send for an attach: the block's own, its read-only twin while a host block may be
 * written to, or the pool's. */
static inline int pool_lend_fd(const struct pool *pool, const struct block *block, bool write)
{
	if (block->fd < 0)
		return pool->pool_fd;
	return !write && block->fd_read_only >= 0 ? block->fd_read_only : block->fd;
}

/* ---- allocations: pool_request.c ---- */

/* The bytes that are missing for the user's requests that wait for space. */
uint64_t pool_short_of(const struct pool *pool, uid_t uid);

/* Requests a block. 0: r->block is there (from the pending list). -EINPROGRESS: r->on_done comes
 * later, with r->result 0 or -errno and r->fault. Any other -errno: refused, *f says why, and
 * on_done never comes. If the pool or its device is full, everything pending is flushed and the
 * request tried once more; after that it waits for space, if r->wait_ms is set. */
int pool_alloc(struct pool *pool, struct pool_request *r, uint64_t bytes, uid_t uid,
	       struct fault *f);

/* The owner gives up: the block, when it comes, is freed. on_done is still called with -ECANCELED,
 * so that the request's memory can be freed: at once if the request waits for space or for the
 * pool's start, else later. */
void pool_request_cancel(struct pool_request *r);

/* ---- deferred frees: deferred_free.c ---- */

/* Puts the block on the pending list, or gives a large one back soon. foreign: another uid than
 * `uid` has had it, so that it is not reused. */
void pool_free(struct pool *pool, struct block *block, uid_t uid, bool foreign);

/* The processes that had the block say that they have let go of it. Calls on_kept(arg, id, ...)
 * once it is given back, if it turns out that one has not. Nothing is looked for in small blocks,
 * in the host's memory, and without NVML. */
typedef void pool_on_kept(void *arg, uint64_t id, struct pool *pool, uint64_t bytes);
void pool_expect_freed(struct block *block, pool_on_kept *on_kept, void *arg, uint64_t id);

/* The daemon ends while a client has the block mapped: closes the block's fds without a driver
 * call. */
void pool_let_go(struct pool *pool, struct block *block);

/* Bytes that may be pending. When more are, or more than ten blocks, all of them are given back. */
uint64_t pool_pending_max(const struct pool *pool);

/* Submits everything pending to be given back; it no longer counts against the pool. An empty
 * mempool is soon made anew. */
void pool_flush(struct pool *pool);

/* Waits for everything that was flushed to be given back, or lost. True: f->on_done will be called.
 * False: there is nothing to wait for, or the GPU is stuck and f->late says so. */
bool pool_flush_wait(struct pool *pool, struct flush *f);

/* The pool's GPU is stuck: ends all waits, with the pool's bit in f->late. */
void pool_flush_give_up(struct pool *pool);

/* ---- the pool's GPU: gpu_group.c ---- */

/* A driver call for this pool has failed with *f. On CODE_POOL_FAILED the device is lost, and every
 * pool of the device fails. */
void pool_call_failed(struct pool *pool, const struct fault *f);

/* Since when the pool's GPU is stuck, for people; NULL: it is not. */
const char *pool_stuck(const struct pool *pool);

/* What is wrong with the pool, failed or stuck; NULL: nothing. */
const char *pool_trouble(const struct pool *pool);
