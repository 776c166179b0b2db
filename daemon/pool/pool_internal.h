/* SPDX-License-Identifier: MIT
 *
 * What the files of a pool share: pool.c is its life, pool_request.c allocates, deferred_free.c
 * gives back, gpu_group.c knows the other pools of the GPU, and a backend_*.c has the calls of a
 * kind. Others include pool.h.
 */
#pragma once

#include "daemon/pool/pool.h"

/* A freed block and the job that gives it back. It is made together with the block, so that freeing
 * needs no memory. */
struct pending {
	struct job job; /* its link is in pool::pending until the worker gets it */
	struct pool *pool;
	struct block block;
	uint64_t due_ms; /* of the loop's clock: when it is given back */
	uid_t uid;	 /* the block's last owner */
	bool foreign;
	bool kept;	       /* the worker has found that a process keeps the memory */
	pool_on_kept *on_kept; /* NULL: nobody asks for that */
	void *kept_arg;
	uint64_t kept_id;
	int barrier;	     /* owned; the worker waits until it hangs up; -1: for nothing */
	int result;	     /* of ops->free */
	struct fault *fault; /* owned; why it failed. NULL: no failure, or no memory for the text */
};

/* ---- backend_*.c: the kinds, for the table pool_kinds in cuda.c and nocuda.c ---- */

#define DECLARE_OPS(name, ...) extern const struct pool_ops name##_ops;
ALL_KINDS(DECLARE_OPS)
#define OPS_OF(name, ...) &name##_ops,

/* ---- pool.c ---- */

/* Goes on with pool_close() when nothing is under way any more. */
void pool_close_if_done(struct pool *pool);

/* ---- pool_request.c ---- */

/* Initialises the lists and the timer of requests. */
void pool_requests_init(struct pool *pool);

/* The pool's state has changed: requests that waited for that are tried or refused. */
void pool_requests_resume(struct pool *pool);

/* Memory was freed, or the pool has failed: soon all requests that wait for space are tried again.
 */
void pool_requests_retry(struct pool *pool);

/* ---- deferred_free.c ---- */

/* Takes a block of exactly that size and uid off the pending list. Returns whether there was one.
 */
bool pending_reuse(struct pool *pool, uint64_t bytes, uid_t uid, struct block *ret);

/* ---- host_memory.c ---- */

/* How much memory the host, and the control group of this process, have left: the least of what the
 * kernel calls available, and what each control group that this process is in may still use; page
 * cache that can be dropped counts as free. UINT64_MAX if nothing is known. *ret_whose, for people:
 * which of these it is. proc and sys are "/proc" and "/sys/fs/cgroup", except in tests. Reads
 * files: some 100 us. */
uint64_t host_memory_free(const char *proc, const char *sys, const char **ret_whose);

/* ---- nvml.c ---- */

/* Bytes of the GPU that no process has; any thread. False: nobody can say. */
bool nvml_free_bytes(const struct device *d, uint64_t *ret);

/* ---- gpu_group.c ---- */

/* Gives back what is pending in the pool and in all others of its GPU, before any job that is
 * submitted to the pool's worker from now on. */
void gpu_group_flush(struct pool *pool);

/* Writes how much other pools of the GPU hold, "gpu0-mempool: 1.0 GiB, ", to text; "" for none. */
void gpu_group_describe(const struct pool *pool, char *text, size_t size);

/* Fails a ready pool if its device is lost. */
void gpu_group_join(struct pool *pool);

/* Looks at the device's worker; logs when a call has taken longer than that, and when it has
 * returned. Returns whether that has changed. */
bool gpu_group_check_stuck(struct device *d, uint32_t seconds);
