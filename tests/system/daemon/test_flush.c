/* SPDX-License-Identifier: MIT
 *
 * Freed memory that waits to be used again, and FLUSH, which gives it back before it replies.
 */
#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/client.h"
#include "tests/lib/result.h"
#include "tests/lib/shell.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <stdio.h>
#include <string.h>

#define STRANGER 65529

#define CONFIG                                              \
	"[pool a]\nkind=host\nsize=64M\nallow-users=root\n" \
	"[pool b]\nkind=host\nsize=64M\n"

static const struct role roles[] = { { "user", user_role } };

static void make_pending(struct gpushm *conn, const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = NULL;

	for (int i = 0; i < 3; i++) {
		ck_assert_msg(gpushm_create(conn, "x", 1 << 20, &o, &b) == 0, "%s", gpushm_error());
		ck_assert_int_ge(gpushm_close(b), 0);
	}
}

static uint64_t pending_in(const char *pool)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (strcmp(pools[i]->name, pool) == 0)
			return pools[i]->pending_bytes;
	ck_abort_msg("no pool %s", pool);
}

/* The number of fds of host memory that the daemon has open. */
static uint32_t memory_fds(void)
{
	return census_files(d.pid, "/memfd:gpushm:b");
}

START_TEST(flushed_memory_is_gone_when_the_reply_comes)
{
	for (int round = 0; round < 20; round++) {
		make_pending(c, "b");
		ck_assert_uint_eq(pending_in("b"), 3 << 20);
		ck_assert_uint_gt(memory_fds(), 0);
		ck_assert_int_eq(gpushm_flush(c, "b"), 0);
		ck_assert_uint_eq(memory_fds(), 0);
		ck_assert_uint_eq(pending_in("b"), 0);
	}
}
END_TEST

START_TEST(a_flush_of_one_pool_leaves_the_others)
{
	make_pending(c, "a");
	make_pending(c, "b");
	ck_assert_int_eq(gpushm_flush(c, "b"), 0);
	ck_assert_uint_eq(pending_in("a"), 3 << 20);
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	ck_assert_uint_eq(pending_in("a"), 0);
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	ck_assert_int_eq(gpushm_flush(c, "c"), -ENOENT);
	ck_assert_int_eq(gpushm_flush(c, "a b"), -EINVAL);
}
END_TEST

START_TEST(a_stranger_flushes_only_pools_that_it_may_use)
{
	struct role_process stranger;

	if (!user_may_change())
		return;
	make_pending(c, "a");
	make_pending(c, "b");
	user_start(&stranger, d.socket, STRANGER, STRANGER);
	user_does(&stranger, "flush a", "ACCESS");
	user_does(&stranger, "flush", "OK");
	user_end(&stranger);
	ck_assert_uint_eq(pending_in("a"), 3 << 20);
	ck_assert_uint_eq(pending_in("b"), 0);
}
END_TEST

START_TEST(gpushmctl_flushes_one_pool_or_all)
{
	struct shell sh;

	make_pending(c, "a");
	make_pending(c, "b");
	setenv("GPUSHM_SOCKET", d.socket, 1);
	shell_open(&sh);
	shell_expect(&sh, 0, "$ctl flush a");
	ck_assert_uint_eq(pending_in("a"), 0);
	ck_assert_uint_ne(pending_in("b"), 0);
	shell_expect(&sh, 0, "$ctl flush");
	ck_assert_uint_eq(pending_in("b"), 0);
	shell_expect(&sh, 3, "$ctl flush c");
	shell_close(&sh);
}
END_TEST

/* Over a driver: each default pool. */
START_TEST(a_flush_of_all_pools_leaves_nothing_pending)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++) {
		make_pending(c, pools[i]->name);
		ck_assert_uint_ne(pending_in(pools[i]->name), 0);
	}
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(pending_in(pools[i]->name), 0);
}
END_TEST

static void setup(void)
{
	client_setup_with(CONFIG);
}

int main(int argc, char **argv)
{
	TCase *t = tcase_create("host"), *all = tcase_create("all");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, client_teardown);
	tcase_add_test(t, flushed_memory_is_gone_when_the_reply_comes);
	tcase_add_test(t, a_flush_of_one_pool_leaves_the_others);
	tcase_add_test(t, a_stranger_flushes_only_pools_that_it_may_use);
	tcase_add_test(t, gpushmctl_flushes_one_pool_or_all);
	tcase_add_checked_fixture(all, client_setup, client_teardown);
	tcase_add_test(all, a_flush_of_all_pools_leaves_nothing_pending);
	return suite_run("flush", t, all, NULL);
}
