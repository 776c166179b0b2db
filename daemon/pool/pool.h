/* SPDX-License-Identifier: MIT
 *
 * A pool: where memory comes from; one kind, one place, one size, one set of rules. It counts what
 * is used, pending and allowed, keeps the list of deferred frees, and has the kind's calls made on
 * a worker. All functions here are for the loop's thread; none blocks.
 */
#ifndef GPUSHM_DAEMON_POOL_POOL_H
#define GPUSHM_DAEMON_POOL_POOL_H

#include "daemon/config/pool_config.h"
#include "daemon/pool/device.h"
#include "proto/base/list.h"
#include "proto/fault.h"

/* What a mempool's block has instead of an fd. */
struct pointer {
	uint64_t address;		    /* CUdeviceptr in this process */
	unsigned char record[RECORD_BYTES]; /* by which another one imports it */
};

/* One allocation of a pool, and what a client is given of it. Owned by the buffer that holds it,
 * or by the pool while it is pending. */
struct block {
	uint64_t bytes;	  /* allocated: the request rounded up to the pool's granularity */
	int fd;		  /* the memory's own; -1 for a mempool's */
	int fd_read_only; /* host, while somebody may write: the same memory, for readers; else -1
			   */
	struct pointer *pointer; /* owned; NULL but for a mempool's */
	struct pending *pending; /* made with the block, so that freeing it needs no memory */
	bool inherited; /* an earlier daemon's, and nobody has looked whether it is still there */
};
#define BLOCK_NONE ((struct block){ .fd = -1, .fd_read_only = -1 })

struct pool;

/* What opening a pool has found and made. An adopted pool is served meanwhile, so that the worker
 * writes it here, and the loop takes it over when the job is done. */
struct pool_opened {
	uint64_t granularity; /* bytes; must be set */
	uint64_t max_block;   /* bytes; 0: the pool's size */
	int numa_node;
	int fd; /* mempool: the pool's own; else -1 */
};

/* What a kind must do. open, alloc, free, close and verify run on the pool's worker; nothing else
 * does. */
struct pool_ops {
	enum pool_kind kind;
	bool needs_device;
	bool reuses_pending; /* a freed block may serve the same uid's next CREATE of its size */
	const char *max_block_why; /* why pool::max_block is less than the pool, and what to do */

	/* Fills *ret, which is zero but for the configured node and no fd; makes what the kind
	 * keeps (a driver's pool, the export that is kept alive so that the next ones are cheap).
	 * 0, or -errno with *f filled in; then the pool is failed. */
	int (*open)(struct pool *pool, struct pool_opened *ret, struct fault *f);
	/* bytes is rounded already. 0, or -errno with *f filled in: CODE_POOL_FULL where memory ran
	 * out. */
	int (*alloc)(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f);
	/* Scrubs where the next tenant could read, and gives back; the pointer's struct stays its
	 * caller's. On an error the block stays lost
	 * to the pool, counted as used, and *f says why: memory that may not be clean is never
	 * handed on. */
	int (*free)(struct pool *pool, struct block *block, struct fault *f);
	void (*close)(struct pool *pool);
	/* Whether the memory behind an fd of an earlier daemon is still there; the pool is of that
	 * kind and on that device, and open. 0; -ESTALE: the driver refuses it, and takes one that
	 * was made just now; another -errno: it can't be told. *f is what the driver said. NULL: it
	 * always is. */
	int (*verify)(struct pool *pool, int fd, struct fault *f);
};

extern const struct pool_ops *const pool_kinds[]; /* NULL at the end; without CUDA: host alone */

/* inherited: of an earlier daemon, and not to be had from this one's configuration or driver (a
 * mempool's allocator died with its maker): its buffers attach and free, new ones come from
 * elsewhere. */
enum pool_state { POOL_STARTING, POOL_READY, POOL_FAILED, POOL_INHERITED };

struct pool {
	struct list link; /* pools::all */
	uint32_t index;	  /* 0 to POOLS_MAX - 1: different for each pool that there is now */
	uint32_t id;	  /* on the wire; from 1 */
	struct pool_config config; /* a copy; its lists are owned */
	const struct pool_ops *ops;
	enum pool_state state;
	char why[256]; /* of a failed pool */
	bool opened;   /* it was ready once: what its kind keeps is to be closed */
	/* What an earlier daemon knew of its device, until that is found; owned. */
	struct device *adopted;
	struct device *device;	 /* NULL for host */
	struct list device_link; /* device::pools */
	struct worker *worker;	 /* borrowed: the device's, or the host's */
	int numa_node;
	void *impl;  /* the kind's own; made by open, worker thread only */
	int pool_fd; /* mempool: the pool's own fd, lent with a connection's first attach; else -1
		      */
	uint64_t size, granularity, max_block; /* bytes */

	bool let_go;   /* blocks of it are in use beyond the daemon's end */
	uint64_t used; /* bytes of blocks handed out, those being allocated included */
	uint64_t lost; /* bytes of blocks that could not be freed */
	uint64_t pending_bytes;
	uint32_t pending_count, blocks;
	uint64_t flushed, freed; /* blocks that were ever flushed, and that were given back */
	struct list flushes;	 /* struct flush::link, by their number */
	struct list pending;	 /* struct pending::job, oldest first */
	struct list requests;	 /* struct pool_request::link: under way */
	struct list waiting;	 /* struct pool_request::link: for room, oldest first */
	uv_timer_t room;	 /* for those */
	bool poked;		 /* it is due at once */
	uv_timer_t idle;	 /* flushes what is pending when nobody has asked for a while */

	struct job job; /* opens the pool, later closes it: never both at once */
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

/* Somebody who waits until memory has been given back; a member of whoever that is. */
struct flush {
	struct list link; /* pool::flushes; list_drop() calls it off */
	uint64_t until;	  /* of pool::freed */
	uint64_t late;	  /* bit pool::index: it was not waited for any more, its GPU is stuck */
	void (*on_done)(struct flush *f);
};

/* One allocation under way; a member of whatever wants it. */
struct pool_request {
	struct list link; /* pool::requests */
	struct job job;
	struct pool *pool;
	uint64_t wait_ms; /* set before pool_alloc(): how long it may wait for room; UINT64_MAX: for
			     ever */
	uint64_t deadline_ms;  /* of the loop's clock */
	uint64_t asked, bytes; /* and rounded up */
	uid_t uid;
	bool retried, cancelled, waiting, foreign;
	bool parked;	    /* until an adopted pool has been started */
	struct block block; /* on success: the request's owner takes it */
	int result;
	struct fault fault;
	void (*on_done)(struct pool_request *r);
};

/* Makes a pool and opens it on its worker; on_ready is called once, later, when it is ready or
 * failed, and not after pool_close(). device is NULL for host kinds, and for a GPU kind whose
 * device was not found (why says so; else it may be NULL): then the pool is failed from the start.
 * worker is never NULL, and outlives the pool. 0 or -errno. */
int pool_new(const struct pool_config *config, struct device *device, struct worker *worker,
	     const char *why, void (*on_ready)(struct pool *pool, void *arg), void *arg,
	     struct pool **ret);

/* A pool that an earlier daemon had, before this one's driver has been asked: it attaches and frees
 * at once, and what is asked of it to allocate waits for pool_start(). told: what is known of its
 * device; NULL for host. 0 or -ENOMEM. */
int pool_adopt(const struct pool_config *config, uint32_t id, uint64_t size, uint64_t granularity,
	       const struct device *told, struct worker *worker, struct pool **ret);

/* Takes over a block of it. The fds are the pool's caller's from now on, in *ret; fd is the
 * memory's own, or -1 with a mempool's record. sealed: nobody may write to it any more. 0 or
 * -errno, and then the fd stays the caller's; -EBADF: it can't be written to, and should be. */
int pool_adopt_block(struct pool *pool, uint64_t bytes, int fd, bool sealed,
		     const unsigned char *record, struct block *ret);

/* Nobody may write to a host block any more: what it could be opened for writing with is closed. */
void pool_seal_block(struct block *block);

/* Opens an adopted pool, as pool_new() does. */
int pool_start(struct pool *pool, const struct pool_config *config, struct device *device,
	       struct worker *worker, const char *why,
	       void (*on_ready)(struct pool *pool, void *arg), void *arg);

/* Nothing will be allocated in an adopted pool any more; requests that wait for it fail. */
void pool_retire(struct pool *pool, const char *why);

/* Gives back what is pending, and closes the kind on the worker. Blocks must be gone, and requests
 * under way be cancelled: they are waited for. on_closed may be NULL; the pool is freed after it.
 */
void pool_close(struct pool *pool, void (*on_closed)(void *arg), void *arg);

/* Whether a process of that user may create in the pool. */
bool pool_allows(const struct pool *pool, uid_t uid, const gid_t *gids, size_t n_gids);

/* Asks for a block. 0: r->block is there (from the pending list). -EINPROGRESS: r->on_done comes
 * later, with r->result 0 or -errno and r->fault. Any other -errno: refused, *f says why, on_done
 * never comes. When the pool or its device is full, what is pending is flushed and the request
 * tried once more; after that it waits for room, if r->wait_ms is set. */
int pool_alloc(struct pool *pool, struct pool_request *r, uint64_t bytes, uid_t uid,
	       struct fault *f);

/* The owner has gone: the block, when it comes, is freed, and on_done is still called (result
 * -ECANCELED), so that the request's memory can go: at once where it waits for room or for the
 * pool to be started, else later. */
void pool_request_cancel(struct pool_request *r);

/* Takes the block onto the pending list. foreign: another uid than `uid` has had it, so it is not
 * reused. */
void pool_free(struct pool *pool, struct block *block, uid_t uid, bool foreign);

/* The daemon ends while somebody has the block mapped: closes its fds, and tells the driver
 * nothing. */
void pool_let_go(struct pool *pool, struct block *block);

/* Takes over what a reload may change: who may use the pool, and when pending memory is given back.
 * 0 or -ENOMEM. */
int pool_reload(struct pool *pool, const struct pool_config *fresh);

/* Submits all that is pending to be given back; it counts against the pool no more. */
void pool_flush(struct pool *pool);

/* Waits for all that was ever flushed to have been given back, or lost. False: it has been already,
 * or its GPU is stuck, as f->late says then. Else f->on_done is called, later. */
bool pool_flush_wait(struct pool *pool, struct flush *f);

/* The pool's GPU is stuck: nobody waits for it any more, and each is told so. */
void pool_flush_give_up(struct pool *pool);

/* The fd to lend for an attach: the block's own, its read-only twin while a host block may be
 * written to, or the pool's. */
int pool_lend_fd(const struct pool *pool, const struct block *block, bool write);

#endif
