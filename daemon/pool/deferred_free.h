/* SPDX-License-Identifier: MIT
 *
 * What the files that make up a pool have of each other; freed blocks that wait to be given back
 * above all. Everyone else calls pool_free() and pool_flush().
 */
#ifndef GPUSHM_DAEMON_POOL_DEFERRED_FREE_H
#define GPUSHM_DAEMON_POOL_DEFERRED_FREE_H

#include "daemon/pool/pool.h"

/* One freed block, and the job that gives it back. It is made with the block and goes where the
 * block goes. */
struct pending {
	struct job job; /* its link is in pool::pending until the worker is given it */
	struct pool *pool;
	struct block block;
	uid_t uid; /* of its last owner */
	bool foreign;
	int result;	     /* of ops->free */
	struct fault *fault; /* why it failed; owned. NULL: it did not, or there was no memory */
};

/* Takes a block of exactly that size for that uid off the list. Returns whether there was one. */
bool pending_reuse(struct pool *pool, uint64_t bytes, uid_t uid, struct block *ret);

/* Starts the idle timer anew where something is pending, else stops it. */
void pending_touch(struct pool *pool);

/* Tries a request that was checked, and is in no list. 0: r->block is there. -EINPROGRESS: on its
 * way to the driver. Else *f; CODE_POOL_FULL where the pool has no room. */
int pool_request_try(struct pool_request *r, struct fault *f);

/* Goes on with pool_close(), when nothing is under way any more. */
void pool_close_if_done(struct pool *pool);

/* For pool.c: an adopted pool has been started, or will not be. */
void pool_requests_resume(struct pool *pool);

#endif
