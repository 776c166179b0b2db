/* SPDX-License-Identifier: MIT
 *
 * A daemon that starts after a crash with another configuration than before: what stays as it was,
 * and what the new configuration changes. On host memory, and pinned memory of the fake driver.
 */
#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/fake.h"
#include "tests/lib/fds.h"
#include "tests/lib/kept.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MIB (1u << 20)
#define A "[pool a]\nkind=host\nsize=64M\n"
#define B "[pool b]\nkind=host\nsize=64M\n"

static void start(const char *config)
{
	fds_mark();
	supervisor_init(&k, config);
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

static void crash_into(const char *config)
{
	FILE *f = fopen(k.config, "we");

	ck_assert(f && fputs(config, f) >= 0 && fclose(f) == 0);
	kept_crash();
}

static struct gpushm_buffer *create_in(const char *pool, const char *name, uint64_t bytes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };

	return client_create(name, bytes, &o);
}

START_TEST(a_lower_limit_keeps_leases_that_are_held)
{
	struct gpushm_buffer *x, *y, *more = NULL;

	start(A);
	x = create_in("a", "x", MIB);
	y = create_in("a", "y", MIB);
	ck_assert_int_eq(gpushm_publish(x, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_publish(y, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_unlink(c, "y"), 0);
	crash_into(A "[limits]\nmax-leases=1\nmax-buffers=1\nmax-bytes=1M\n");
	ck_assert_uint_eq(client_status().leases, 2);
	ck_assert_uint_eq(client_used_bytes(), 2 * MIB);
	ck_assert_int_eq(gpushm_create(c, "z", 1, NULL, &more), -EDQUOT);
	ck_assert_int_eq(gpushm_close(y), 0);
	client_close_and_unlink(x, "x");
	kept_teardown();
}
END_TEST

/* The number of fds of pool a's memory that the daemon has open. */
static uint32_t memory_fds(void)
{
	return census_files(k.pid, "/memfd:gpushm:a");
}

/* Pool b is inherited by one daemon after the other, as long as it holds x. */
START_TEST(a_flush_empties_a_pool_when_another_was_inherited)
{
	struct gpushm_buffer *x, *freed[4];
	char name[16];

	start(A B);
	x = create_in("b", "x", MIB);
	ck_assert_int_eq(gpushm_publish(x, GPUSHM_SHARED), 0);
	crash_into(A);
	kept_crash();
	for (int round = 0; round < 10; round++) {
		/* So much memory that the kernel needs a while to free it. */
		for (size_t i = 0; i < array_size(freed); i++) {
			snprintf(name, sizeof(name), "y%zu", i);
			freed[i] = create_in("a", name, 16 * MIB);
			memset(gpushm_buffer_host_ptr(freed[i]), 1, 16 * MIB);
		}
		for (size_t i = 0; i < array_size(freed); i++)
			ck_assert_int_eq(gpushm_discard(freed[i]), 0);
		ck_assert_uint_gt(memory_fds(), 0);
		ck_assert_int_eq(gpushm_flush(c, NULL), 0);
		ck_assert_uint_eq(memory_fds(), 0);
	}
	client_close_and_unlink(x, "x");
	kept_teardown();
}
END_TEST

/* The NUMA node of the pool of that name that makes buffers now; -2: there is none. */
static int node_of(const char *name)
{
	struct gpushm_pool **pools = NULL;
	int node = -2;
	size_t n = 0;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (strcmp(pools[i]->name, name) == 0 && !pools[i]->failed)
			node = pools[i]->numa_node;
	gpushm_free(pools);
	return node;
}

#define PINNED "[pool p]\nkind=pinned\nsize=64M\n"

START_TEST(a_pinned_pool_moves_to_its_new_node)
{
	struct gpushm_buffer *x, *y, *again = NULL;

	if (!fake_is_here())
		return;
	start(A PINNED "numa-node=0\n");
	x = create_in("p", "x", MIB);
	memset(gpushm_buffer_host_ptr(x), 7, MIB);
	ck_assert_int_eq(gpushm_publish(x, GPUSHM_SHARED), 0);
	ck_assert_int_eq(node_of("p"), 0);
	crash_into(A PINNED "numa-node=1\n");
	ck_assert_int_eq(node_of("p"), 1);
	y = create_in("p", "y", MIB);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &again), 0);
	ck_assert_int_eq(*(const char *)gpushm_buffer_host_ptr(again), 7);
	ck_assert_int_eq(gpushm_close(again), 0);
	ck_assert_int_eq(gpushm_restart(c), 0);
	ck_assert_int_eq(node_of("p"), 1);
	ck_assert_int_eq(gpushm_discard(y), 0);
	client_close_and_unlink(x, "x");
	crash_into(A PINNED);
	ck_assert_int_eq(node_of("p"), 0);
	kept_teardown();
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("reconfigured");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_lower_limit_keeps_leases_that_are_held);
	tcase_add_test(t, a_flush_empties_a_pool_when_another_was_inherited);
	tcase_add_test(t, a_pinned_pool_moves_to_its_new_node);
	return suite_run("reconfigured", t, NULL);
}
