/* SPDX-License-Identifier: MIT
 *
 * An allocation on its way through a pool: checked and counted on the loop's thread, made on the
 * worker's, handed over on the loop's.
 *
 * What a request asks for counts as used from the moment it is submitted, so that two at once can't
 * both get the last room. A free that was submitted earlier counts no more: the worker runs it
 * first. A request that the driver has no memory for is tried once more after everything pending
 * on its GPU, whichever pool had it, was given back. The request's memory is its owner's; the block
 * is, too, once on_done was called with 0, and before that nobody's but ours.
 */
#include "daemon/pool/deferred_free.h"
#include "daemon/pool/failure.h"
#include "daemon/pool/gpu_group.h"
#include "daemon/pool/space.h"
#include "daemon/pool/stuck.h"
#include "proto/base/size.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static bool fits(const struct pool *pool, uint64_t bytes)
{
	uint64_t taken = pool->used + pool->lost + pool->pending_bytes;

	return taken <= pool->size && bytes <= pool->size - taken;
}

/* An adopted pool takes requests before it has been started. */
static bool is_open(const struct pool *pool)
{
	return pool->state == POOL_READY || (pool->state == POOL_STARTING && pool->is_adopted);
}

static int refuse_state(const struct pool *pool, struct fault *f)
{
	const char *why =
		pool->state == POOL_STARTING ? "it is still starting; try again" : pool->why;

	return fault(f, CODE_POOL_FAILED, "pool \"%s\": %s", pool->config.name, why);
}

static int refuse_large(const struct pool *pool, uint64_t bytes, struct fault *f)
{
	uint64_t whole = pool->size - pool->size % pool->granularity;
	const char *why = pool->ops->max_block_why;

	if (!why || pool->max_block == whole)
		why = "that is all that the pool may hold";
	return fault(f, CODE_TOO_LARGE, "pool \"%s\": %s asked, one buffer may have %s: %s",
		     pool->config.name, size_format(bytes).text, size_format(pool->max_block).text,
		     why);
}

static int refuse_full(const struct pool_request *r, struct fault *f)
{
	const struct pool *pool = r->pool;
	uint64_t taken = pool->used + pool->lost + pool->pending_bytes;
	uint64_t room = taken < pool->size ? pool->size - taken : 0;

	return fault(f, CODE_POOL_FULL,
		     "pool \"%s\": %s asked, %s of %s free; gpushmctl ls --holders shows who has "
		     "the rest",
		     pool->config.name, size_format(r->asked).text, size_format(room).text,
		     size_format(pool->size).text);
}

static void run_alloc(struct job *job)
{
	struct pool_request *r = container_of(job, struct pool_request, job);
	struct block block = BLOCK_NONE;

	r->result = r->pool->ops->alloc(r->pool, r->bytes, &block, &r->fault);
	if (r->result < 0)
		return;

	block.pending = r->block.pending;
	r->block = block;
}

static void prefix_fault(const struct pool_request *r, struct fault *f)
{
	struct fault driver = *f;
	char others[96];

	if (driver.code != CODE_POOL_FULL) {
		fault(f, driver.code, "pool \"%s\": %s asked: %.160s", r->pool->config.name,
		      size_format(r->asked).text, driver.text);
		return;
	}
	gpu_group_tell(r->pool, others, sizeof(others));
	fault(f, driver.code,
	      "pool \"%s\": %s asked: %.100s; the pool has room, but other pools or programs hold "
	      "the memory (%snvidia-smi shows programs)",
	      r->pool->config.name, size_format(r->asked).text, driver.text, others);
}

/* Counted when it was submitted. */
static void discount(struct pool_request *r)
{
	r->pool->used -= r->bytes;
	r->pool->blocks--;
	free(take_ptr(r->block.pending));
}

static void drop_failed(struct pool_request *r)
{
	discount(r);
	prefix_fault(r, &r->fault);
}

/* A block that came for nobody was never shown to anyone, but its user is no longer known here. */
static void drop_cancelled(struct pool_request *r)
{
	if (r->result == 0)
		pool_free(r->pool, &r->block, (uid_t)-1, true);
	r->result = -ECANCELED;
}

static bool may_wait(const struct pool_request *r)
{
	return r->fault.code == CODE_POOL_FULL && !r->cancelled && space_has_time(r);
}

static void on_alloc_done(struct job *job)
{
	struct pool_request *r = container_of(job, struct pool_request, job);
	struct pool *pool = r->pool;
	bool closing = pool->closing;

	if (r->result < 0 && r->fault.code == CODE_POOL_FULL && !r->retried && !r->cancelled) {
		r->retried = true;
		gpu_group_flush(pool);
		worker_submit(pool->worker, &r->job);
		return;
	}

	list_drop(&r->link);
	if (r->result < 0)
		failure_note(pool, &r->fault);
	if (r->result < 0)
		drop_failed(r);
	if (r->result < 0 && may_wait(r)) {
		space_wait(r, true);
		return;
	}
	if (r->result < 0)
		space_poke(pool);
	if (r->cancelled)
		drop_cancelled(r);

	r->on_done(r);
	if (closing)
		pool_close_if_done(pool);
}

static void go(struct pool_request *r)
{
	r->job.run = run_alloc;
	r->job.on_done = on_alloc_done;
	worker_submit(r->pool->worker, &r->job);
}

static int submit(struct pool *pool, struct pool_request *r, struct fault *f)
{
	if (stuck_trouble(pool))
		return fault(f, CODE_POOL_FAILED, "pool \"%s\": %s", pool->config.name,
			     stuck_trouble(pool));
	r->block.pending = calloc(1, sizeof(*r->block.pending));
	if (!r->block.pending)
		return fault(f, CODE_NO_MEMORY, "pool \"%s\": the daemon is out of memory",
			     pool->config.name);

	r->block.pending->pool = pool;
	list_insert(&pool->requests, &r->link);
	r->parked = pool->state == POOL_STARTING;
	if (!r->parked)
		go(r);
	return -EINPROGRESS;
}

/* It never came to the driver: what it is refused for says nothing of that. */
static void end_parked(struct pool_request *r, int result)
{
	struct pool *pool = r->pool;
	bool closing = pool->closing;

	r->parked = false;
	list_drop(&r->link);
	discount(r);
	r->result = result;
	space_poke(pool);
	r->on_done(r);
	if (closing)
		pool_close_if_done(pool);
}

static int check_open(const struct pool_request *r, struct fault *f)
{
	if (!is_open(r->pool))
		return refuse_state(r->pool, f);
	/* Of one that is still starting nobody knows yet. */
	if (r->pool->state == POOL_READY && r->asked > r->pool->max_block)
		return refuse_large(r->pool, r->asked, f);
	return 0;
}

/* The pool's state has changed: what waited for that is tried or refused. */
void pool_requests_resume(struct pool *pool)
{
	struct pool_request *r;

	if (pool->state == POOL_STARTING)
		return;
	list_foreach (r, &pool->requests, link) {
		int result = r->parked ? check_open(r, &r->fault) : 0;

		if (result < 0) {
			end_parked(r, result);
		} else if (r->parked) {
			r->parked = false;
			go(r);
		}
	}
	space_poke(pool);
}

static void count(struct pool *pool, uint64_t bytes)
{
	pool->used += bytes;
	pool->blocks++;
}

int pool_request_try(struct pool_request *r, struct fault *f)
{
	struct pool *pool = r->pool;
	int ret = check_open(r, f);

	if (ret < 0)
		return ret;

	r->retried = false;
	r->block = BLOCK_NONE;
	if (pending_reuse(pool, r->bytes, r->uid, &r->block)) {
		count(pool, r->bytes);
		pending_touch(pool);
		return 0;
	}

	if (!fits(pool, r->bytes))
		pool_flush(pool);
	if (!fits(pool, r->bytes))
		return refuse_full(r, f);

	ret = submit(pool, r, f);
	if (ret == -EINPROGRESS)
		count(pool, r->bytes);
	pending_touch(pool);
	return ret;
}

int pool_alloc(struct pool *pool, struct pool_request *r, uint64_t bytes, uid_t uid,
	       struct fault *f)
{
	int ret;

	assert(bytes > 0 && !pool->closing);

	r->pool = pool;
	r->uid = uid;
	r->asked = bytes;
	ret = check_open(r, f);
	if (ret < 0)
		return ret;

	r->bytes = bytes + (pool->granularity - bytes % pool->granularity) % pool->granularity;
	r->cancelled = r->waiting = r->foreign = false;
	r->result = 0;
	list_init(&r->link);
	if (r->wait_ms)
		space_set_deadline(r);

	ret = pool_request_try(r, f);
	if (ret == 0 || ret == -EINPROGRESS || f->code != CODE_POOL_FULL || !space_has_time(r))
		return ret;

	r->fault = *f;
	space_wait(r, false);
	return -EINPROGRESS;
}

void pool_request_cancel(struct pool_request *r)
{
	assert(!list_empty(&r->link));

	r->cancelled = true;
	if (r->waiting)
		space_leave(r, -ECANCELED);
	else if (r->parked)
		end_parked(r, -ECANCELED);
}
