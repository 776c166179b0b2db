/* SPDX-License-Identifier: MIT
 *
 * Three kinds of pool with a made-up driver that counts its calls, and fails those that a test
 * chooses. A test that includes this file defines pool_kinds[], so that the linker leaves out the
 * archive's table.
 *
 * The test writes `driver` while no request is in progress; the worker writes it while one is. Only
 * `frees` may be read meanwhile.
 */
#pragma once

#include "tests/unit/daemon/pool_fixture.h"

#include <assert.h>
#include <fcntl.h>
#include <unistd.h>

#define ALICE 1000
#define BOB 1001

static struct {
	int opens, allocs, closes;
	_Atomic int frees;
	int fail_alloc, n_fail_alloc; /* the number of the first call that fails; how many fail */
	enum code fail_code;
	int fail_free;	   /* the number of the call that fails */
	uint64_t capacity; /* of the device */
	uint64_t live;	   /* bytes */
	bool fail_open;
} driver;

static inline int test_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	driver.opens++;
	if (driver.fail_open)
		return fault(f, CODE_DRIVER, "cuOpen: CUDA_ERROR_UNKNOWN");
	ret->granularity = MIB;
	return 0;
}

static inline int test_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f)
{
	int n = ++driver.allocs;

	assert(bytes % MIB == 0);
	if (n >= driver.fail_alloc && n < driver.fail_alloc + driver.n_fail_alloc)
		return fault(f, driver.fail_code, "cuAlloc: CUDA_ERROR_OF_CALL_%d", n);
	if (driver.live + bytes > driver.capacity)
		return fault(f, CODE_POOL_FULL, "cuAlloc: CUDA_ERROR_OUT_OF_MEMORY");

	*ret = BLOCK_NONE;
	ret->bytes = bytes;
	ret->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert(ret->fd >= 0);
	driver.live += bytes;
	return 0;
}

static inline int test_free(struct pool *pool, struct block *block, struct fault *f)
{
	close_fd(&block->fd);
	if (++driver.frees == driver.fail_free)
		return fault(f, CODE_DRIVER, "cuFree: CUDA_ERROR_ILLEGAL_ADDRESS");
	driver.live -= block->bytes;
	return 0;
}

static inline void test_close(struct pool *pool)
{
	driver.closes++;
}

static const struct pool_ops reusing_ops = {
	.kind = POOL_HOST,
	.reuses_pending = true,
	.open = test_open,
	.alloc = test_alloc,
	.free = test_free,
	.close = test_close,
};

static inline int limited_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	ret->max_block = 4 * MIB;
	return test_open(pool, ret, f);
}

static const struct pool_ops gpu_ops = {
	.kind = POOL_MEMPOOL,
	.max_block_why = "use another pool",
	.open = limited_open,
	.alloc = test_alloc,
	.free = test_free,
	.close = test_close,
};

static const struct pool_ops large_ops = {
	.kind = POOL_VMM,
	.reuses_pending = true,
	.open = test_open,
	.alloc = test_alloc,
	.free = test_free,
	.close = test_close,
};

const struct pool_ops *const pool_kinds[] = { &reusing_ops, &gpu_ops, &large_ops, NULL };

static struct device gpu;
static struct pool *pool;

static inline void setup(void)
{
	fixture_open();
	memset(&driver, 0, sizeof(driver));
	driver.capacity = UINT64_MAX;
	gpu = (struct device){ .ordinal = 0, .bytes = 50 * MIB };
	list_init(&gpu.pools);
}

/* Every test ends with its pool closed and no memory left in the driver. */
static inline void teardown(void)
{
	if (pool)
		close_pool(take_ptr(pool));
	ck_assert_uint_eq(driver.live, 0);
	ck_assert_int_eq(driver.closes, driver.fail_open ? 0 : driver.opens);
	fixture_close();
}

static inline void open_of(uint64_t bytes)
{
	struct pool_config c = a_config(POOL_HOST, bytes);

	pool = open_pool(&c, NULL);
	ck_assert_int_eq(pool->state, POOL_READY);
}

static inline void open_gpu(uint64_t bytes)
{
	struct pool_config c = a_config(POOL_MEMPOOL, bytes);

	pool = open_pool(&c, &gpu);
	ck_assert_int_eq(pool->state, POOL_READY);
}

static inline void give(struct block *block, uid_t uid)
{
	pool_free(pool, block, uid, false);
	ck_assert_int_eq(block->fd, -1);
	ck_assert_ptr_null(block->pending);
}

static inline void fill(struct block *blocks, int n)
{
	for (int i = 0; i < n; i++)
		blocks[i] = get(pool, MIB, ALICE);
}
