/* SPDX-License-Identifier: MIT
 *
 * Waiting for room. Requests wait in their order, and each time that something is freed in the pool
 * all of them are tried in that order; a request that does not wait takes what it finds and is not
 * held up by those that do. Memory that other programs or other pools hold comes back without a
 * word to us: for who waits for that the driver is asked again every half second. One timer a pool
 * does it all, so that nobody is told in the middle of who frees.
 */
#include "daemon/pool/space.h"

#include "daemon/pool/deferred_free.h"

#define RETRY_MS 500u

static void on_timer(uv_timer_t *timer);

void space_init(struct pool *pool)
{
	list_init(&pool->waiting);
	uv_timer_init(worker_loop(pool->worker), &pool->room); /* never fails in libuv 1.x */
	uv_unref((uv_handle_t *)&pool->room);		       /* a deadline keeps no loop alive */
	pool->room.data = pool;
}

void space_set_deadline(struct pool_request *r)
{
	uv_loop_t *loop = worker_loop(r->pool->worker);
	uint64_t now;

	uv_update_time(loop);
	now = uv_now(loop);
	r->deadline_ms = r->wait_ms > UINT64_MAX - now ? UINT64_MAX : now + r->wait_ms;
}

bool space_has_time(const struct pool_request *r)
{
	return r->wait_ms > 0 && uv_now(worker_loop(r->pool->worker)) < r->deadline_ms;
}

static void arm(struct pool *pool)
{
	uint64_t now = uv_now(pool->room.loop), at = UINT64_MAX;
	struct pool_request *r;

	list_foreach (r, &pool->waiting, link) {
		if (r->deadline_ms < at)
			at = r->deadline_ms;
		if (r->foreign && now + RETRY_MS < at)
			at = now + RETRY_MS;
	}
	if (at == UINT64_MAX && !pool->poked)
		uv_timer_stop(&pool->room);
	else
		uv_timer_start(&pool->room, on_timer, at > now && !pool->poked ? at - now : 0, 0);
}

void space_wait(struct pool_request *r, bool foreign)
{
	r->waiting = true;
	r->foreign = foreign;
	list_insert(&r->pool->waiting, &r->link);
	arm(r->pool);
}

void space_leave(struct pool_request *r, int result)
{
	list_drop(&r->link);
	r->waiting = false;
	r->result = result;
	r->on_done(r);
}

void space_poke(struct pool *pool)
{
	if (list_empty(&pool->waiting))
		return;
	pool->poked = true;
	uv_timer_start(&pool->room, on_timer, 0, 0);
}

/* It is in no list. One whose time is over is tried like the others, once more. */
static void try(struct pool_request *r)
{
	int result;

	r->waiting = false;
	result = pool_request_try(r, &r->fault);
	if (result == -EINPROGRESS)
		return;
	if (result < 0 && r->fault.code == CODE_POOL_FULL && space_has_time(r))
		space_wait(r, false);
	else
		space_leave(r, result);
}

/* Who is told may free something, ask for more, or call off another one that waits. */
static void on_timer(uv_timer_t *timer)
{
	struct pool *pool = timer->data;
	struct list turn;
	struct pool_request *r;

	pool->poked = false;
	list_init(&turn);
	list_foreach (r, &pool->waiting, link) {
		list_drop(&r->link);
		list_insert(&turn, &r->link);
	}
	while (!list_empty(&turn)) {
		r = list_first(&turn, struct pool_request, link);
		list_drop(&r->link);
		try(r);
	}
	arm(pool);
}
