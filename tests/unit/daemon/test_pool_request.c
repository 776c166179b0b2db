/* SPDX-License-Identifier: MIT
 *
 * Allocations: counting and limits, the driver's errors and the one retry, cancelling.
 */
#include "tests/lib/suite.h"
#include "tests/unit/daemon/pool_driver.h"

START_TEST(a_block_is_rounded_up_and_counted_until_it_is_free)
{
	struct block b;

	open_of(100 * MIB);
	b = get(pool, MIB + 1, ALICE);
	ck_assert_uint_eq(b.bytes, 2 * MIB);
	ck_assert_uint_eq(pool->used, 2 * MIB);
	ck_assert_uint_eq(pool->blocks, 1);

	give(&b, ALICE);
	ck_assert_uint_eq(pool->used, 0);
	ck_assert_uint_eq(pool->blocks, 0);
	ck_assert_uint_eq(pool->pending_bytes, 2 * MIB);
	ck_assert_uint_eq(pool->pending_count, 1);

	pool_flush(pool);
	ck_assert_uint_eq(pool->pending_bytes, 0);
	ck_assert_uint_eq(pool->pending_count, 0);
}
END_TEST

START_TEST(a_full_pool_reports_the_requested_and_the_free_bytes)
{
	struct block b, none;
	struct fault f;

	open_of(10 * MIB);
	b = get(pool, 8 * MIB, ALICE);
	ck_assert_int_eq(request_block(pool, 4 * MIB, ALICE, &none, &f), -ENOSPC);
	ck_assert_int_eq(f.code, CODE_POOL_FULL);
	ck_assert_ptr_nonnull(
		strstr(f.text, "pool \"p\": 4.0 MiB asked, 2.0 MiB of 10.0 MiB free"));
	ck_assert_int_eq(driver.allocs, 1);
	give(&b, ALICE);
}
END_TEST

START_TEST(the_last_space_is_not_given_to_two_requests_at_once)
{
	struct pool_request one = { .on_done = on_request_done },
			    two = { .on_done = on_request_done };
	struct fault f;

	open_of(10 * MIB);
	ck_assert_int_eq(pool_alloc(pool, &one, 6 * MIB, ALICE, &f), -EINPROGRESS);
	ck_assert_uint_eq(pool->used, 6 * MIB);
	ck_assert_int_eq(pool_alloc(pool, &two, 6 * MIB, BOB, &f), -ENOSPC);
	settle();
	ck_assert_int_eq(fixture.done, 1);
	give(&one.block, ALICE);
}
END_TEST

START_TEST(a_pool_can_be_filled_to_the_last_byte)
{
	struct block b;

	open_of(10 * MIB);
	b = get(pool, 10 * MIB, ALICE);
	give(&b, ALICE);
}
END_TEST

START_TEST(more_than_the_pool_is_too_large_even_if_all_is_free)
{
	struct block none;
	struct fault f;

	open_of(10 * MIB + 5);
	ck_assert_uint_eq(pool->max_block, 10 * MIB);
	ck_assert_int_eq(request_block(pool, 10 * MIB + 1, ALICE, &none, &f), -EFBIG);
	ck_assert_int_eq(f.code, CODE_TOO_LARGE);
	ck_assert_int_eq(request_block(pool, UINT64_MAX, ALICE, &none, &f), -EFBIG);
	ck_assert_int_eq(driver.allocs, 0);
}
END_TEST

START_TEST(more_than_the_kind_allows_is_refused_with_an_alternative)
{
	struct block none;
	struct fault f;

	open_gpu(40 * MIB);
	ck_assert_int_eq(request_block(pool, 4 * MIB + 1, ALICE, &none, &f), -EFBIG);
	ck_assert_ptr_nonnull(strstr(f.text, "use another pool"));
}
END_TEST

START_TEST(a_percentage_is_of_the_device_and_no_pool_is_larger_than_it)
{
	struct pool_config c = a_config(POOL_MEMPOOL, 0);

	c.size.percent = 50;
	pool = open_pool(&c, &gpu);
	ck_assert_uint_eq(pool->size, 25 * MIB);
	close_pool(take_ptr(pool));

	fixture.ready = fixture.closed = 0;
	open_gpu(1000 * MIB);
	ck_assert_uint_eq(pool->size, gpu.bytes);
}
END_TEST

START_TEST(out_of_memory_flushes_and_the_request_is_tried_once_more)
{
	struct block b;

	open_of(100 * MIB);
	driver.capacity = 3 * MIB; /* other programs use the GPU, too */
	b = get(pool, 2 * MIB, ALICE);
	give(&b, ALICE);
	b = get(pool, 3 * MIB, ALICE);
	ck_assert_int_eq(driver.allocs, 3);
	ck_assert_int_eq(driver.frees, 1);
	ck_assert_uint_eq(pool->used, 3 * MIB);
	give(&b, ALICE);
}
END_TEST

START_TEST(out_of_memory_twice_is_told_as_the_driver_does_and_not_counted)
{
	struct block none;
	struct fault f;

	open_of(100 * MIB);
	driver.capacity = 0;
	ck_assert_int_eq(request_block(pool, MIB, ALICE, &none, &f), -ENOSPC);
	ck_assert_int_eq(f.code, CODE_POOL_FULL);
	ck_assert_str_eq(f.text, "pool \"p\": 1.0 MiB asked: cuAlloc: CUDA_ERROR_OUT_OF_MEMORY; "
				 "the pool has room, but other pools or programs hold the memory "
				 "(top shows programs)");
	ck_assert_int_eq(driver.allocs, 2);
	ck_assert_uint_eq(pool->used, 0);
	ck_assert_uint_eq(pool->blocks, 0);
}
END_TEST

START_TEST(another_error_is_not_tried_again)
{
	struct block none;
	struct fault f;

	open_of(100 * MIB);
	driver.fail_alloc = driver.n_fail_alloc = 1;
	driver.fail_code = CODE_DRIVER;
	ck_assert_int_eq(request_block(pool, MIB, ALICE, &none, &f), -EIO);
	ck_assert_int_eq(f.code, CODE_DRIVER);
	ck_assert_int_eq(driver.allocs, 1);
	ck_assert_uint_eq(pool->used, 0);
}
END_TEST

START_TEST(a_block_of_a_cancelled_request_is_freed_and_never_reused)
{
	struct pool_request r = { .on_done = on_request_done };
	struct block b;
	struct fault f;

	open_of(10 * MIB);
	ck_assert_int_eq(pool_alloc(pool, &r, MIB, ALICE, &f), -EINPROGRESS);
	pool_request_cancel(&r);
	ck_assert_uint_eq(pool->used, MIB);
	settle();
	ck_assert_int_eq(fixture.done, 1);
	ck_assert_int_eq(r.result, -ECANCELED);
	ck_assert_uint_eq(pool->used, 0);
	ck_assert_uint_eq(pool->pending_count, 1);

	b = get(pool, MIB, ALICE);
	ck_assert_int_eq(driver.allocs, 2);
	give(&b, ALICE);
}
END_TEST

START_TEST(a_cancelled_request_that_fails_is_not_tried_again)
{
	struct pool_request r = { .on_done = on_request_done };
	struct fault f;

	open_of(10 * MIB);
	driver.capacity = 0;
	ck_assert_int_eq(pool_alloc(pool, &r, MIB, ALICE, &f), -EINPROGRESS);
	pool_request_cancel(&r);
	settle();
	ck_assert_int_eq(fixture.done, 1);
	ck_assert_int_eq(r.result, -ECANCELED);
	ck_assert_int_eq(driver.allocs, 1);
	ck_assert_uint_eq(pool->used, 0);
}
END_TEST

static TCase *counting_tests(void)
{
	TCase *tc = tcase_create("counting");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_block_is_rounded_up_and_counted_until_it_is_free);
	tcase_add_test(tc, a_full_pool_reports_the_requested_and_the_free_bytes);
	tcase_add_test(tc, the_last_space_is_not_given_to_two_requests_at_once);
	tcase_add_test(tc, a_pool_can_be_filled_to_the_last_byte);
	tcase_add_test(tc, more_than_the_pool_is_too_large_even_if_all_is_free);
	tcase_add_test(tc, more_than_the_kind_allows_is_refused_with_an_alternative);
	tcase_add_test(tc, a_percentage_is_of_the_device_and_no_pool_is_larger_than_it);
	return tc;
}

static TCase *errors_tests(void)
{
	TCase *tc = tcase_create("errors");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, out_of_memory_flushes_and_the_request_is_tried_once_more);
	tcase_add_test(tc, out_of_memory_twice_is_told_as_the_driver_does_and_not_counted);
	tcase_add_test(tc, another_error_is_not_tried_again);
	return tc;
}

static TCase *cancelling_tests(void)
{
	TCase *tc = tcase_create("cancelling");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_block_of_a_cancelled_request_is_freed_and_never_reused);
	tcase_add_test(tc, a_cancelled_request_that_fails_is_not_tried_again);
	return tc;
}

int main(void)
{
	return suite_run("pool_request", counting_tests(), errors_tests(), cancelling_tests(),
			 NULL);
}
