/* SPDX-License-Identifier: MIT
 *
 * An allocation on its way through a pool: checked and counted on the loop's thread, made on the
 * worker's, handed over on the loop's.
 *
 * A request's bytes count as used from the moment it is submitted, so that two requests can't both
 * get the last space. Freed bytes stop counting when their free is submitted: the worker runs it
 * before any later allocation. If the driver has no memory for a request, everything pending on its
 * GPU is given back, and the request is tried once more. The owner owns the request's memory; it
 * owns the block after on_done was called with 0.
 *
 * A request may wait for space. Requests wait in order, and each time that something is freed in
 * the pool all of them are tried in that order; a request that does not wait takes what it finds.
 * Memory of other programs or other pools comes back without notice: for requests that need it the
 * driver is asked again every half second. One timer for each pool does all of it, so that on_done
 * is never called from inside a call that frees.
 */
#include "daemon/pool/pool_internal.h"
#include "proto/base/clock.h"
#include "proto/base/size.h"

#include <assert.h>
#include <string.h>

#define RETRY_MS 500u

static int try(struct pool_request *r, struct fault *f);

/* ---- refusals ---- */

static uint64_t space_in(const struct pool *pool)
{
	uint64_t taken = pool->used + pool->lost + pool->pending_bytes;

	return taken < pool->size ? pool->size - taken : 0;
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

	return fault(f, CODE_POOL_FULL,
		     "pool \"%s\": %s asked, %s of %s free; gpushmctl ls --holders shows who has "
		     "the rest",
		     pool->config.name, size_format(r->asked).text,
		     size_format(space_in(pool)).text, size_format(pool->size).text);
}

/* Says for whom the driver had no memory. */
static void prefix_fault(const struct pool_request *r, struct fault *f)
{
	struct fault driver = *f;
	char others[96];

	if (driver.code != CODE_POOL_FULL) {
		fault(f, driver.code, "pool \"%s\": %s asked: %.160s", r->pool->config.name,
		      size_format(r->asked).text, driver.text);
		return;
	}
	gpu_group_describe(r->pool, others, sizeof(others));
	fault(f, driver.code,
	      "pool \"%s\": %s asked: %.100s; the pool has room, but other pools or programs hold "
	      "the memory (%s%s shows programs)",
	      r->pool->config.name, size_format(r->asked).text, driver.text, others,
	      kind_of(r->pool->config.kind)->by_driver ? "nvidia-smi" : "top");
}

static int check_open(const struct pool_request *r, struct fault *f)
{
	if (!is_open(r->pool))
		return refuse_state(r->pool, f);
	/* While the pool is starting max_block is unknown. */
	if (r->pool->state == POOL_READY && r->asked > r->pool->max_block)
		return refuse_large(r->pool, r->asked, f);
	return 0;
}

/* ---- requests that wait for space ---- */

static void on_timer(uv_timer_t *timer);

void pool_requests_init(struct pool *pool)
{
	list_init(&pool->requests);
	list_init(&pool->waiting);
	uv_timer_init(worker_loop(pool->worker), &pool->retry); /* never fails in libuv 1.x */
	uv_unref((uv_handle_t *)&pool->retry); /* this timer alone does not keep the loop running */
	pool->retry.data = pool;
}

static void set_deadline(struct pool_request *r)
{
	uv_update_time(worker_loop(r->pool->worker));
	r->deadline_ms = clock_deadline_ms(r->wait_ms);
}

static bool may_wait(const struct pool_request *r, const struct fault *f)
{
	return f->code == CODE_POOL_FULL && !r->cancelled && r->wait_ms > 0 &&
	       uv_now(worker_loop(r->pool->worker)) < r->deadline_ms;
}

static void arm(struct pool *pool)
{
	uint64_t now = uv_now(pool->retry.loop), at = UINT64_MAX;
	struct pool_request *r;

	list_foreach (r, &pool->waiting, link) {
		if (r->deadline_ms < at)
			at = r->deadline_ms;
		if (r->foreign && now + RETRY_MS < at)
			at = now + RETRY_MS;
	}
	if (at == UINT64_MAX && !pool->retry_now)
		uv_timer_stop(&pool->retry);
	else
		uv_timer_start(&pool->retry, on_timer, at > now && !pool->retry_now ? at - now : 0,
			       0);
}

/* The request waits; r->fault is its reply if it gets nothing. foreign: the pool has space but the
 * device has none, and no event tells when that changes. */
static void wait_for_space(struct pool_request *r, bool foreign)
{
	r->waiting = true;
	r->foreign = foreign;
	list_insert(&r->pool->waiting, &r->link);
	arm(r->pool);
}

static void stop_waiting(struct pool_request *r, int result)
{
	list_drop(&r->link);
	r->waiting = false;
	r->result = result;
	r->on_done(r);
}

void pool_requests_retry(struct pool *pool)
{
	if (list_empty(&pool->waiting))
		return;
	pool->retry_now = true;
	uv_timer_start(&pool->retry, on_timer, 0, 0);
}

/* r is in no list. A request whose time is over is tried once more, too. */
static void retry(struct pool_request *r)
{
	int result;

	r->waiting = false;
	result = try(r, &r->fault);
	if (result == -EINPROGRESS)
		return;
	if (result < 0 && may_wait(r, &r->fault))
		wait_for_space(r, false);
	else
		stop_waiting(r, result);
}

/* An on_done may free a block, make a request, or cancel another request that waits. */
static void on_timer(uv_timer_t *timer)
{
	struct pool *pool = timer->data;
	struct list turn;
	struct pool_request *r;

	pool->retry_now = false;
	list_init(&turn);
	list_move(&pool->waiting, &turn);
	list_drain (r, &turn, link)
		retry(r);
	arm(pool);
}

/* ---- on the worker and back ---- */

static int make(struct pool_request *r)
{
	struct block block = BLOCK_NONE;
	int ret = r->pool->ops->alloc(r->pool, r->bytes, &block, &r->fault);

	if (ret < 0)
		return ret;
	block.pending = r->block.pending;
	r->block = block;
	return 0;
}

/* The first failure is what the request reports. */
static void unmake(struct pool_request *r)
{
	struct pending *pending = take_ptr(r->block.pending);
	struct fault ignored;

	r->pool->ops->free(r->pool, &r->block, &ignored);
	r->block = BLOCK_NONE;
	r->block.pending = pending;
	r->populated = 0;
}

static void run_alloc(struct job *job)
{
	struct pool_request *r = container_of(job, struct pool_request, job);
	const struct pool_ops *ops = r->pool->ops;

	r->result = r->populated == 0 ? make(r) : 0;
	if (r->result < 0 || !ops->populate)
		return;
	r->result = ops->populate(r->pool, &r->block, &r->populated, &r->fault);
	if (r->result < 0 && r->result != -EINPROGRESS)
		unmake(r);
}

static void count(struct pool *pool, uint64_t bytes)
{
	pool->used += bytes;
	pool->blocks++;
	pool->renew_now = false;
	if (pool->used + pool->pending_bytes > pool->peak)
		pool->peak = pool->used + pool->pending_bytes;
}

static void discount(struct pool_request *r)
{
	r->pool->used -= r->bytes;
	r->pool->blocks--;
	free(take_ptr(r->block.pending));
}

/* Nobody has seen the block, but its uid is no longer known here: it must not be reused. */
static void drop_cancelled(struct pool_request *r)
{
	if (r->result == 0)
		pool_free(r->pool, &r->block, (uid_t)-1, true);
	r->result = -ECANCELED;
}

static void on_alloc_done(struct job *job)
{
	struct pool_request *r = container_of(job, struct pool_request, job);
	struct pool *pool = r->pool;
	bool closing = pool->closing;

	if (r->result == -EINPROGRESS && !r->cancelled) {
		worker_submit(pool->worker, &r->job);
		return;
	}
	if (r->result == -EINPROGRESS)
		r->result = 0; /* a block that drop_cancelled() frees */
	if (r->result < 0 && r->fault.code == CODE_POOL_FULL && !r->retried && !r->cancelled) {
		r->retried = true;
		gpu_group_flush(pool);
		worker_submit(pool->worker, &r->job);
		return;
	}

	list_drop(&r->link);
	if (r->result < 0) {
		pool_call_failed(pool, &r->fault);
		discount(r);
		prefix_fault(r, &r->fault);
		if (may_wait(r, &r->fault)) {
			wait_for_space(r, true);
			return;
		}
		pool_requests_retry(pool);
	}
	if (r->cancelled)
		drop_cancelled(r);

	r->on_done(r);
	if (closing)
		pool_close_if_done(pool);
}

static void submit(struct pool_request *r)
{
	r->job.run = run_alloc;
	r->job.on_done = on_alloc_done;
	worker_submit(r->pool->worker, &r->job);
}

static int start(struct pool *pool, struct pool_request *r, struct fault *f)
{
	if (pool_trouble(pool))
		return fault(f, CODE_POOL_FAILED, "pool \"%s\": %s", pool->config.name,
			     pool_trouble(pool));
	r->block.pending = calloc(1, sizeof(*r->block.pending));
	if (!r->block.pending)
		return fault(f, CODE_NO_MEMORY, "pool \"%s\": the daemon is out of memory",
			     pool->config.name);

	r->block.pending->pool = pool;
	list_insert(&pool->requests, &r->link);
	r->parked = pool->state == POOL_STARTING;
	if (!r->parked)
		submit(r);
	return -EINPROGRESS;
}

/* Tries a request that is in no list. 0: r->block is there. -EINPROGRESS: it is on its way to the
 * driver. Else *f says why; CODE_POOL_FULL: the pool has no space. */
static int try(struct pool_request *r, struct fault *f)
{
	struct pool *pool = r->pool;
	int ret = check_open(r, f);

	if (ret < 0)
		return ret;

	r->retried = false;
	r->populated = 0;
	r->block = BLOCK_NONE;
	if (pending_reuse(pool, r->bytes, r->uid, &r->block)) {
		count(pool, r->bytes);
		return 0;
	}

	if (r->bytes > space_in(pool))
		pool_flush(pool);
	if (r->bytes > space_in(pool))
		return refuse_full(r, f);

	ret = start(pool, r, f);
	if (ret == -EINPROGRESS)
		count(pool, r->bytes);
	return ret;
}

/* ---- requests that wait for an adopted pool to start ---- */

/* The driver was not asked, so that the result says nothing about the device. */
static void end_parked(struct pool_request *r, int result)
{
	struct pool *pool = r->pool;
	bool closing = pool->closing;

	r->parked = false;
	list_drop(&r->link);
	discount(r);
	r->result = result;
	pool_requests_retry(pool);
	r->on_done(r);
	if (closing)
		pool_close_if_done(pool);
}

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
			submit(r);
		}
	}
	pool_requests_retry(pool);
}

/* ---- for the pool's users ---- */

uint64_t pool_short_of(const struct pool *pool, uid_t uid)
{
	uint64_t wanted = pool->used + pool->lost;
	const struct pool_request *r;
	bool waits = false;

	list_foreach (r, &pool->waiting, link)
		if (r->uid == uid) {
			wanted += r->bytes;
			waits = true;
		}
	return waits && wanted > pool->size ? wanted - pool->size : 0;
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

	r->bytes = pool_round(pool, bytes);
	r->cancelled = r->waiting = r->foreign = false;
	r->result = 0;
	list_init(&r->link);
	if (r->wait_ms)
		set_deadline(r);

	ret = try(r, f);
	if (ret == 0 || ret == -EINPROGRESS || !may_wait(r, f))
		return ret;

	r->fault = *f;
	wait_for_space(r, false);
	return -EINPROGRESS;
}

void pool_request_cancel(struct pool_request *r)
{
	assert(!list_empty(&r->link));

	r->cancelled = true;
	if (r->waiting)
		stop_waiting(r, -ECANCELED);
	else if (r->parked)
		end_parked(r, -ECANCELED);
}
