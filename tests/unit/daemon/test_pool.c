/* SPDX-License-Identifier: MIT
 *
 * Pools: opening and closing, which users may use one, and the fds that it lends.
 */
#include "tests/lib/suite.h"
#include "tests/unit/daemon/pool_driver.h"

START_TEST(a_pool_that_is_still_starting_refuses)
{
	struct pool_config c = a_config(POOL_HOST, 10 * MIB);
	struct pool_request r = { .on_done = on_request_done };
	struct fault f;

	ck_assert_int_eq(pool_new(&c, NULL, fixture.worker, NULL, on_ready, &fixture, &pool), 0);
	ck_assert_int_eq(fixture.ready, 0);
	ck_assert_int_eq(pool_alloc(pool, &r, MIB, ALICE, &f), -ENODEV);
	ck_assert_int_eq(f.code, CODE_POOL_FAILED);
	ck_assert_ptr_nonnull(strstr(f.text, "starting"));
	settle();
	ck_assert_int_eq(fixture.ready, 1);
}
END_TEST

START_TEST(a_pool_that_could_not_be_opened_refuses_with_the_reason)
{
	struct pool_config c = a_config(POOL_HOST, 10 * MIB);
	struct block none;
	struct fault f;

	driver.fail_open = true;
	pool = open_pool(&c, NULL);
	ck_assert_int_eq(pool->state, POOL_FAILED);
	ck_assert_str_eq(pool->why, "cuOpen: CUDA_ERROR_UNKNOWN");
	ck_assert_int_eq(request_block(pool, MIB, ALICE, &none, &f), -ENODEV);
	ck_assert_str_eq(f.text, "pool \"p\": cuOpen: CUDA_ERROR_UNKNOWN");
}
END_TEST

START_TEST(a_pool_without_its_gpu_fails_later_and_makes_no_driver_call)
{
	struct pool_config c = a_config(POOL_MEMPOOL, 10 * MIB);

	ck_assert_int_eq(pool_new(&c, NULL, fixture.worker, "no such GPU", on_ready, &fixture,
				  &pool),
			 0);
	ck_assert_int_eq(fixture.ready, 0);
	settle();
	ck_assert_int_eq(fixture.ready, 1);
	ck_assert_int_eq(pool->state, POOL_FAILED);
	ck_assert_str_eq(pool->why, "no such GPU");
	ck_assert_int_eq(driver.opens, 0);
}
END_TEST

START_TEST(a_kind_that_this_build_lacks_fails_with_that_reason)
{
	struct pool_config c = a_config(POOL_PINNED, 10 * MIB);

	pool = open_pool(&c, NULL);
	ck_assert_int_eq(pool->state, POOL_FAILED);
	ck_assert_str_eq(pool->why, "built without the CUDA Toolkit: no pinned pools");
}
END_TEST

START_TEST(close_frees_pending_blocks_before_the_kind_ends)
{
	struct block b[3];

	open_of(10 * MIB);
	fill(b, 3);
	for (int i = 0; i < 3; i++)
		give(&b[i], ALICE);
	close_pool(take_ptr(pool));
	ck_assert_int_eq(driver.frees, 3);
	ck_assert_int_eq(driver.closes, 1);
}
END_TEST

START_TEST(closing_a_starting_pool_waits_and_never_calls_on_ready)
{
	struct pool_config c = a_config(POOL_HOST, 10 * MIB);

	ck_assert_int_eq(pool_new(&c, NULL, fixture.worker, NULL, on_ready, &fixture, &pool), 0);
	close_pool(take_ptr(pool));
	ck_assert_int_eq(fixture.ready, 0);
	ck_assert_int_eq(driver.closes, 1);
}
END_TEST

START_TEST(close_waits_for_a_cancelled_request_and_frees_its_block)
{
	struct pool_request r[2] = { { .on_done = on_request_done },
				     { .on_done = on_request_done } };
	struct fault f;

	open_of(10 * MIB);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pool_alloc(pool, &r[i], MIB, ALICE, &f), -EINPROGRESS);
		pool_request_cancel(&r[i]);
	}
	close_pool(take_ptr(pool));
	ck_assert_int_eq(fixture.done, 2);
	ck_assert_int_eq(driver.frees, 2);
}
END_TEST

static void close_in_on_done(struct pool_request *r)
{
	fixture.done++;
	pool_close(take_ptr(pool), on_closed, &fixture);
}

START_TEST(close_from_the_last_on_done_closes_once)
{
	struct pool_request r = { .on_done = close_in_on_done };
	struct fault f;

	open_of(10 * MIB);
	ck_assert_int_eq(pool_alloc(pool, &r, MIB, ALICE, &f), -EINPROGRESS);
	pool_request_cancel(&r);
	settle();
	ck_assert_int_eq(fixture.closed, 1);
	ck_assert_int_eq(driver.closes, 1);
}
END_TEST

START_TEST(a_restricted_pool_admits_only_the_users_and_groups_that_it_names)
{
	uint32_t users[] = { ALICE }, groups[] = { 50 };
	struct pool_config c = a_config(POOL_HOST, 10 * MIB);
	gid_t outside[] = { 7, 8 }, inside[] = { 7, 50 };

	c.restricted = true;
	c.allow_users = (struct id_list){ users, 1 };
	c.allow_groups = (struct id_list){ groups, 1 };
	pool = open_pool(&c, NULL);
	users[0] = groups[0] = 99; /* the pool has its own copy */

	ck_assert(pool_allows(pool, ALICE, outside, 2));
	ck_assert(pool_allows(pool, BOB, inside, 2));
	ck_assert(!pool_allows(pool, BOB, outside, 2));
	ck_assert(!pool_allows(pool, BOB, NULL, 0));
	ck_assert(!pool_allows(pool, 99, NULL, 0));
}
END_TEST

START_TEST(a_reload_changes_the_allowed_users_and_the_pending_age)
{
	uint32_t users[] = { ALICE };
	struct pool_config c = a_config(POOL_HOST, 10 * MIB);

	open_of(10 * MIB);
	c.restricted = true;
	c.allow_users = (struct id_list){ users, 1 };
	c.pending_max_age = 6;
	c.size.bytes = MIB;
	ck_assert_int_eq(pool_reload(pool, &c), 0);
	users[0] = BOB;

	ck_assert(pool_allows(pool, ALICE, NULL, 0));
	ck_assert(!pool_allows(pool, BOB, NULL, 0));
	ck_assert_uint_eq(pool->config.pending_max_age, 6);
	ck_assert_uint_eq(pool->size, 10 * MIB);
}
END_TEST

START_TEST(an_unrestricted_pool_admits_all_users)
{
	open_of(10 * MIB);
	ck_assert(pool_allows(pool, BOB, NULL, 0));
}
END_TEST

START_TEST(a_reader_is_lent_the_read_only_fd_and_a_mempools_block_the_pools)
{
	struct block b = BLOCK_NONE;

	open_of(10 * MIB);
	b.fd = 10;
	ck_assert_int_eq(pool_lend_fd(pool, &b, false), 10);
	b.fd_read_only = 11;
	ck_assert_int_eq(pool_lend_fd(pool, &b, false), 11);
	ck_assert_int_eq(pool_lend_fd(pool, &b, true), 10);

	b = BLOCK_NONE;
	pool->pool_fd = 12;
	ck_assert_int_eq(pool_lend_fd(pool, &b, true), 12);
	pool->pool_fd = -1;
}
END_TEST

static TCase *life_tests(void)
{
	TCase *tc = tcase_create("life");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_pool_that_is_still_starting_refuses);
	tcase_add_test(tc, a_pool_that_could_not_be_opened_refuses_with_the_reason);
	tcase_add_test(tc, a_pool_without_its_gpu_fails_later_and_makes_no_driver_call);
	tcase_add_test(tc, a_kind_that_this_build_lacks_fails_with_that_reason);
	tcase_add_test(tc, close_frees_pending_blocks_before_the_kind_ends);
	tcase_add_test(tc, closing_a_starting_pool_waits_and_never_calls_on_ready);
	tcase_add_test(tc, close_waits_for_a_cancelled_request_and_frees_its_block);
	tcase_add_test(tc, close_from_the_last_on_done_closes_once);
	return tc;
}

static TCase *lending_tests(void)
{
	TCase *tc = tcase_create("lending");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_restricted_pool_admits_only_the_users_and_groups_that_it_names);
	tcase_add_test(tc, a_reload_changes_the_allowed_users_and_the_pending_age);
	tcase_add_test(tc, an_unrestricted_pool_admits_all_users);
	tcase_add_test(tc, a_reader_is_lent_the_read_only_fd_and_a_mempools_block_the_pools);
	return tc;
}

int main(void)
{
	return suite_run("pool", life_tests(), lending_tests(), NULL);
}
