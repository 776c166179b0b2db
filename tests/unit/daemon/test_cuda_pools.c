/* SPDX-License-Identifier: MIT
 *
 * The three kinds of pool that need a driver: the parts of a block, what the daemon keeps,
 * scrubbing, refusals and error texts.
 */
#include "tests/lib/suite.h"
#include "tests/unit/daemon/cuda_fixture.h"

#include <fcntl.h>

/* cuInit opens fds that stay open: the count starts after it. */
static void setup(void)
{
	devices_probe(&devices);
	ck_assert_msg(devices.n > 0, "%s", devices.why_none);
	load_fake();
	fixture_open();
}

static void teardown(void)
{
	devices_done(&devices);
	if (!handed_out) { /* a real driver may open fds at any time */
		fixture_end();
		return;
	}
	ck_assert_uint_eq(handed_out(), 0);
	ck_assert_uint_eq(calls("cuStreamDestroy"), calls("cuStreamCreate"));
	ck_assert_uint_eq(calls("cuDevicePrimaryCtxRelease"), calls("cuDevicePrimaryCtxRetain"));
	fixture_close();
}

static struct pool *open_kind(enum pool_kind kind, uint64_t bytes)
{
	struct pool_config c = a_config(kind, bytes);
	struct pool *pool;

	fixture.ready = fixture.closed = 0;
	pool = open_pool(&c, &devices.items[0]);
	ck_assert_msg(pool->state == POOL_READY, "%s", pool->why);
	return pool;
}

START_TEST(probing_tells_every_device_apart)
{
	for (size_t i = 0; i < devices.n; i++) {
		struct device *d = &devices.items[i];

		ck_assert_int_eq(d->ordinal, (int)i);
		ck_assert_uint_gt(d->bytes, 0);
		ck_assert_ptr_eq(devices_find(&devices, d->pci_id), d);
		ck_assert_str_ne(d->name, "");
		ck_assert_ptr_null(d->context);
		for (size_t j = 0; j < i; j++)
			ck_assert_mem_ne(d->uuid, devices.items[j].uuid, UUID_BYTES);
	}
}
END_TEST

START_TEST(each_device_gets_a_worker_of_its_own)
{
	ck_assert_int_eq(devices_start(&devices, &fixture.loop), 0);
	for (size_t i = 0; i < devices.n; i++) {
		ck_assert_ptr_nonnull(devices.items[i].worker);
		ck_assert_ptr_eq(worker_loop(devices.items[i].worker), &fixture.loop);
	}
}
END_TEST

START_TEST(a_block_has_the_fds_and_records_that_its_clients_need)
{
	struct pool *pool = open_kind(kinds[_i], 64 * MIB);
	struct block b = get(pool, 3 * MIB + 1, UID);
	static const unsigned char none[RECORD_BYTES];
	bool mempool = kinds[_i] == POOL_MEMPOOL;

	ck_assert_uint_ge(b.bytes, 3 * MIB + 1);
	ck_assert_uint_eq(b.bytes % pool->granularity, 0);
	ck_assert_int_eq(b.fd >= 0, !mempool);
	ck_assert_int_eq(pool->pool_fd >= 0, mempool);
	ck_assert_int_eq(b.fd_read_only, -1);
	ck_assert_int_ge(pool_lend_fd(pool, &b, true), 0);
	ck_assert_int_eq(b.pointer != NULL, mempool);
	if (mempool) {
		ck_assert_uint_ne(b.pointer->address, 0);
		ck_assert_mem_ne(b.pointer->record, none, sizeof(none));
	}

	pool_free(pool, &b, UID, false);
	close_pool(pool);
}
END_TEST

START_TEST(only_a_mempools_first_block_makes_a_context)
{
	struct pool *pool = open_kind(kinds[_i], 64 * MIB);
	struct block b;

	ck_assert_ptr_null(devices.items[0].context);
	b = get(pool, MIB, UID);
	ck_assert_int_eq(devices.items[0].context != NULL, kinds[_i] == POOL_MEMPOOL);
	pool_free(pool, &b, UID, false);
	close_pool(pool);
}
END_TEST

START_TEST(a_freed_block_of_the_same_user_is_reused_where_the_kind_may)
{
	struct pool *pool = open_kind(kinds[_i], 64 * MIB);
	struct block b = get(pool, MIB, UID);
	int fd = b.fd;

	pool_free(pool, &b, UID, false);
	b = get(pool, MIB, UID);
	if (kinds[_i] != POOL_MEMPOOL)
		ck_assert_int_eq(b.fd, fd);
	ck_assert_uint_eq(pool->pending_count, kinds[_i] == POOL_MEMPOOL);
	pool_free(pool, &b, UID, false);
	close_pool(pool);
}
END_TEST

START_TEST(a_pool_is_filled_and_emptied_again_and_again)
{
	struct pool *pool = open_kind(kinds[_i], 16 * MIB);
	struct block b[8];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 8; i++)
			b[i] = get(pool, 2 * MIB, UID + round);
		for (int i = 0; i < 8; i++)
			pool_free(pool, &b[i], UID + round, false);
	}
	close_pool(pool);
}
END_TEST

START_TEST(a_mempool_refuses_above_4_gib_and_names_an_alternative)
{
	struct pool *pool = open_kind(POOL_MEMPOOL, 5 * GIB);
	struct block none;
	struct fault f;

	ck_assert_uint_eq(pool->max_block, 4 * GIB);
	ck_assert_int_eq(request_block(pool, 4 * GIB + 1, UID, &none, &f), -EFBIG);
	ck_assert_int_eq(f.code, CODE_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(f.text, "4.0 GiB"));
	ck_assert_ptr_nonnull(strstr(f.text, "use a vmm pool"));
	close_pool(pool);
}
END_TEST

START_TEST(a_pinned_pool_is_on_the_configured_node_or_else_on_the_devices)
{
	struct pool *pool = open_kind(POOL_PINNED, 64 * MIB);
	int node = devices.items[0].numa_node;

	ck_assert_int_eq(pool->numa_node, node >= 0 ? node : 0);
	close_pool(pool);
}
END_TEST

START_TEST(the_daemon_holds_only_the_fd_of_a_block)
{
	struct pool *pool;
	struct block b;

	if (kinds[_i] == POOL_MEMPOOL || !fake_is_there())
		return;
	pool = open_kind(kinds[_i], 64 * MIB);
	ck_assert_uint_eq(calls("cuMemExportToShareableHandle"), 1); /* the one kept alive */
	b = get(pool, MIB, UID);
	ck_assert_uint_eq(calls("cuMemExportToShareableHandle"), 2);
	ck_assert_uint_eq(handed_out(), 0);
	pool_free(pool, &b, UID, false);
	close_pool(pool);
}
END_TEST

START_TEST(the_next_user_of_mempool_memory_reads_zero)
{
	struct pool *pool;
	struct block b;
	unsigned char *at; /* the fake's device pointers are the CPU's */

	if (!fake_is_there())
		return;
	pool = open_kind(POOL_MEMPOOL, 64 * MIB);
	b = get(pool, MIB, UID);
	at = (unsigned char *)(uintptr_t)b.pointer->address;
	memset(at, 0x5a, MIB);
	ck_assert_uint_eq(calls("cuMemsetD8Async"), 1);

	pool_free(pool, &b, UID, false);
	pool_flush(pool);
	settle();
	ck_assert_uint_eq(calls("cuMemsetD8Async"), 2);

	b = get(pool, MIB, UID + 1);
	ck_assert_ptr_eq((void *)(uintptr_t)b.pointer->address, at);
	ck_assert_uint_eq(at[0], 0);
	ck_assert_uint_eq(at[MIB - 1], 0);
	pool_free(pool, &b, UID + 1, false);
	close_pool(pool);
}
END_TEST

START_TEST(no_fd_survives_an_exec)
{
	struct pool *pool = open_kind(kinds[_i], 64 * MIB);
	struct block b = get(pool, MIB, UID);

	ck_assert_int_eq(fcntl(pool_lend_fd(pool, &b, true), F_GETFD), FD_CLOEXEC);
	pool_free(pool, &b, UID, false);
	close_pool(pool);
}
END_TEST

START_TEST(a_full_device_is_reported_in_the_drivers_words)
{
	struct pool *pool = open_kind(kinds[_i], 6 * GIB), *other;
	struct block b = get(pool, 3 * GIB, UID), none;
	struct fault f;

	if (kinds[_i] != POOL_PINNED && fake_is_there()) {
		other = open_kind(POOL_VMM, 7 * GIB); /* of 8 GiB in all */
		ck_assert_int_eq(request_block(other, 6 * GIB, UID, &none, &f), -ENOSPC);
		ck_assert_int_eq(f.code, CODE_POOL_FULL);
		ck_assert_ptr_nonnull(strstr(f.text, "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"));
		ck_assert_uint_eq(other->used, 0);
		close_pool(other);
		fixture.closed = 0;
	}
	pool_free(pool, &b, UID, false);
	close_pool(pool);
}
END_TEST

/* tests/system/ctl/test_ctl_driver.c has the other facts, and the doctor. */
START_TEST(a_pool_whose_fds_keep_nothing_fails_and_names_the_fact)
{
	struct pool_config c = a_config(kinds[_i], 64 * MIB);
	struct pool *pool;

	if (!fake_is_there())
		return;
	setenv("FAKECUDA_BREAK", "kept", 1);
	pool = open_pool(&c, &devices.items[0]);
	ck_assert_int_ne(pool->state, POOL_READY);
	ck_assert_msg(strstr(pool->why, "-kept does not hold with this driver"), "%s", pool->why);
	close_pool(pool);
}
END_TEST

static TCase *kinds_tests(void)
{
	TCase *tc = tcase_create("kinds");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, probing_tells_every_device_apart);
	tcase_add_test(tc, each_device_gets_a_worker_of_its_own);
	tcase_add_loop_test(tc, a_block_has_the_fds_and_records_that_its_clients_need, 0, KINDS);
	tcase_add_loop_test(tc, only_a_mempools_first_block_makes_a_context, 0, KINDS);
	tcase_add_loop_test(tc, a_freed_block_of_the_same_user_is_reused_where_the_kind_may, 0,
			    KINDS);
	tcase_add_loop_test(tc, a_pool_is_filled_and_emptied_again_and_again, 0, KINDS);
	tcase_add_loop_test(tc, the_daemon_holds_only_the_fd_of_a_block, 0, KINDS);
	tcase_add_loop_test(tc, no_fd_survives_an_exec, 0, KINDS);
	tcase_add_loop_test(tc, a_pool_whose_fds_keep_nothing_fails_and_names_the_fact, 0, KINDS);
	tcase_add_loop_test(tc, a_full_device_is_reported_in_the_drivers_words, 0, KINDS);
	tcase_add_test(tc, the_next_user_of_mempool_memory_reads_zero);
	tcase_add_test(tc, a_mempool_refuses_above_4_gib_and_names_an_alternative);
	tcase_add_test(tc, a_pinned_pool_is_on_the_configured_node_or_else_on_the_devices);
	return tc;
}

int main(int argc, char **argv)
{
	if (!driver_is_there(argv))
		return EXIT_SUCCESS;
	return suite_run("cuda_pools", kinds_tests(), NULL);
}
