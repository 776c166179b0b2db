/* SPDX-License-Identifier: MIT
 *
 * A loop, a worker, and the steps that every test of pools takes: make a pool, request a block,
 * wait, close. Waiting is running the loop until nothing keeps it alive.
 */
#pragma once

#include "daemon/pool/pool.h"
#include "tests/lib/fds.h"

#include <check.h>
#include <string.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* The loop and worker of the running test. */
struct pool_fixture {
	uv_loop_t loop;
	struct worker *worker;
	int ready, closed; /* calls of on_ready and on_closed */
	int done;	   /* calls of on_done */
};
static struct pool_fixture fixture;

static inline void settle(void)
{
	uv_run(&fixture.loop, UV_RUN_DEFAULT);
}

/* libuv's first loop opens a pipe for signals that stays until the process ends. */
static inline void warm_up_libuv(void)
{
	uv_loop_t once;

	ck_assert_int_eq(uv_loop_init(&once), 0);
	ck_assert_int_eq(uv_loop_close(&once), 0);
}

static inline void fixture_open(void)
{
	warm_up_libuv();
	fds_mark();
	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(uv_loop_init(&fixture.loop), 0);
	ck_assert_int_eq(worker_new(&fixture.loop, "test", &fixture.worker), 0);
}

static inline void fixture_end(void)
{
	fixture.worker = worker_free(fixture.worker);
	settle();
	ck_assert_int_eq(uv_loop_close(&fixture.loop), 0);
}

static inline void fixture_close(void)
{
	fixture_end();
	fds_check();
}

static inline void on_ready(struct pool *pool, void *arg)
{
	ck_assert_ptr_eq(arg, &fixture);
	ck_assert_int_ne(pool->state, POOL_STARTING);
	fixture.ready++;
}

static inline void on_closed(void *arg)
{
	ck_assert_ptr_eq(arg, &fixture);
	fixture.closed++;
}

static inline void on_request_done(struct pool_request *r)
{
	fixture.done++;
}

static inline struct pool_config a_config(enum pool_kind kind, uint64_t bytes)
{
	struct pool_config c = { .name = "p",
				 .kind = kind,
				 .numa_node = -1,
				 .size = { .bytes = bytes },
				 .pending_max_age = 10 };

	return c;
}

/* Opens a pool and waits until it is ready or has failed. */
static inline struct pool *open_pool(const struct pool_config *c, struct device *device)
{
	struct pool *pool = NULL;

	ck_assert_int_eq(pool_new(c, device, fixture.worker, "no such GPU", on_ready, &fixture,
				  &pool),
			 0);
	settle();
	ck_assert_int_eq(fixture.ready, 1);
	return pool;
}

static inline void close_pool(struct pool *pool)
{
	pool_close(pool, on_closed, &fixture);
	settle();
	ck_assert_int_eq(fixture.closed, 1);
}

/* Requests a block and waits for the result; fills in *f if the result is negative. */
static inline int request_block(struct pool *pool, uint64_t bytes, uid_t uid, struct block *ret,
				struct fault *f)
{
	struct pool_request r = { .on_done = on_request_done };
	int result = pool_alloc(pool, &r, bytes, uid, f);

	if (result == -EINPROGRESS) {
		settle();
		result = r.result;
		*f = r.fault;
	}
	if (result == 0)
		*ret = r.block;
	return result;
}

static inline struct block get(struct pool *pool, uint64_t bytes, uid_t uid)
{
	struct block block = BLOCK_NONE;
	struct fault f = { .code = CODE_OK };

	ck_assert_msg(request_block(pool, bytes, uid, &block, &f) == 0, "%s", f.text);
	return block;
}
