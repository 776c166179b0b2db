/* SPDX-License-Identifier: MIT
 *
 * Deferred cleanup, without buffers: when it runs, in which order, and what happens while a section
 * is open, after a failure, without memory, and in a forked child.
 */
#include "client/gpushm_cleanup.h"
#include "client/lib/base/defer.h"

#include "client/lib/base/error.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define ITEMS 64
#define CAPACITY 1000u /* bytes of each device */

static struct item {
	struct deferred d;
	int result; /* the result of its cleanup */
	_Atomic int runs;
} items[ITEMS];
static size_t order[ITEMS]; /* in which they ran */
static _Atomic size_t n_run;

static uint64_t capacity(int device)
{
	return CAPACITY;
}

static int run(struct deferred *d)
{
	struct item *i = container_of(d, struct item, d);
	size_t at = n_run++;

	i->runs++;
	if (at < ITEMS)
		order[at] = (size_t)(i - items);
	return i->result < 0 ? error_set(-i->result, "item %zu", (size_t)(i - items)) : 0;
}

static int add(size_t which, uint64_t bytes, int device)
{
	items[which].d = (struct deferred){ .owner = &items[which % 2],
					    .device = device,
					    .bytes = bytes,
					    .capacity = capacity,
					    .run = run };
	return defer_add(&items[which].d);
}

static void add_some(size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		ck_assert_int_eq(add(i, 1, 0), 0);
}

static void ran_in_order(size_t n)
{
	ck_assert_uint_eq(n_run, n);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(order[i], i);
}

static void setup(void)
{
	fds_mark();
	unsetenv("GPUSHM_MAX_PENDING_UNMAPS_COUNT");
	unsetenv("GPUSHM_MAX_PENDING_UNMAPS_RATIO");
	memset(items, 0, sizeof(items));
	n_run = 0;
}

static void teardown(void)
{
	while (gpushm_resume_cleanup() == 0)
		;
	gpushm_flush_cleanup();
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 0);
	fds_check();
}

/* ---- limits ---- */

START_TEST(a_close_runs_at_once_if_deferring_is_off)
{
	add_some(0, 1);
	ran_in_order(1);
	add_some(1, 2);
	ran_in_order(2);
}
END_TEST

START_TEST(the_first_cleanup_above_the_limit_runs_them_all)
{
	uint64_t bytes;

	ck_assert_int_eq(gpushm_set_cleanup_limits(10, 1), 0);
	add_some(0, 10);
	ck_assert_uint_eq(n_run, 0);
	ck_assert_uint_eq(gpushm_pending_cleanup(&bytes), 10);
	ck_assert_uint_eq(bytes, 10);
	add_some(10, 11);
	ran_in_order(11);
	ck_assert_uint_eq(gpushm_pending_cleanup(&bytes), 0);
	ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(a_ratio_limits_each_gpu_alone_and_may_be_reached)
{
	ck_assert_int_eq(gpushm_set_cleanup_limits(100, 0.25), 0);
	ck_assert_int_eq(add(0, CAPACITY / 4, 0), 0);
	ck_assert_int_eq(add(1, CAPACITY / 4, 1), 0);
	ck_assert_uint_eq(n_run, 0);
	ck_assert_int_eq(add(2, 1, 1), 0);
	ran_in_order(3);
}
END_TEST

START_TEST(an_invalid_ratio_is_refused)
{
	ck_assert_int_eq(gpushm_set_cleanup_limits(1, -0.1), -EINVAL);
	ck_assert_int_eq(gpushm_set_cleanup_limits(1, 1.1), -EINVAL);
	ck_assert_int_eq(gpushm_set_cleanup_limits(1, __builtin_nan("")), -EINVAL);
	ck_assert_int_eq(gpushm_set_cleanup_limits(1, 0), 0);
	ck_assert_int_eq(add(0, 0, 0), 0);
	ck_assert_uint_eq(n_run, 0);
	ck_assert_int_eq(add(1, 0, 0), 0);
	ran_in_order(2);
}
END_TEST

static const struct environment {
	const char *count, *ratio;
	size_t n; /* how many items of one byte may wait, of at most ITEMS - 1 */
} environments[] = {
	{ "10", "1", 10 },	{ "0", "1", 0 },     { "", "1", 0 },	       { "-1", "1", 0 },
	{ "3x", "1", 0 },	{ "1.5", "1", 0 },   { "4294967296", "1", 0 }, { "50", "0.01", 10 },
	{ "50", "0.0101", 10 }, { "50", ".02", 20 }, { "63", "0,01", 63 },     { "63", "2", 63 },
	{ "63", "", 63 },	{ "63", ".", 63 },   { "50", "0", 0 },
};

/* In a child, where the limits have not been read yet. */
static int count_waiting(void *arg)
{
	const struct environment *e = arg;

	setenv("GPUSHM_MAX_PENDING_UNMAPS_COUNT", e->count, 1);
	setenv("GPUSHM_MAX_PENDING_UNMAPS_RATIO", e->ratio, 1);
	for (size_t i = 0; i < ITEMS; i++) {
		add(i, 1, 0);
		if (n_run > 0)
			return (int)i;
	}
	return ITEMS;
}

START_TEST(the_environment_variables_set_the_limits)
{
	for (size_t i = 0; i < array_size(environments); i++)
		ck_assert_msg(forked(count_waiting, (void *)&environments[i]) ==
				      (int)environments[i].n,
			      "count %s, ratio %s", environments[i].count, environments[i].ratio);
}
END_TEST

/* ---- sections ---- */

START_TEST(cleanups_run_with_the_first_close_after_a_section)
{
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	add_some(0, 20);
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	add_some(20, 30);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	add_some(30, 31);
	ck_assert_int_eq(gpushm_flush_cleanup(), -EBUSY);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	ck_assert_uint_eq(n_run, 0);
	add_some(31, 32);
	ran_in_order(32);
}
END_TEST

START_TEST(a_flush_runs_all_cleanups_and_a_section_ends_once)
{
	ck_assert_int_eq(gpushm_flush_cleanup(), 0);
	ck_assert_int_eq(gpushm_resume_cleanup(), -EINVAL);
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	add_some(0, 3);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	ck_assert_int_eq(gpushm_resume_cleanup(), -EINVAL);
	ck_assert_int_eq(gpushm_flush_cleanup(), 0);
	ran_in_order(3);
}
END_TEST

START_TEST(an_allocation_out_of_memory_runs_the_cleanups_of_a_section)
{
	ck_assert(!defer_flush_for_space());
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	ck_assert(!defer_flush_for_space());
	add_some(0, 3);
	ck_assert(defer_flush_for_space());
	ran_in_order(3);
	ck_assert(!defer_flush_for_space());
}
END_TEST

START_TEST(the_end_of_a_connection_runs_its_own_cleanups_only)
{
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	add_some(0, 6);
	defer_flush_owner(&items[1]);
	ck_assert_uint_eq(n_run, 3);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_eq(order[i], 2 * i + 1);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 3);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	ck_assert_int_eq(gpushm_flush_cleanup(), 0);
	for (size_t i = 3; i < 6; i++)
		ck_assert_uint_eq(order[i], 2 * (i - 3));
}
END_TEST

/* ---- failures ---- */

START_TEST(a_failed_cleanup_is_reported_and_the_others_run)
{
	items[1].result = -EIO;
	items[3].result = -ENOMEM;
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	add_some(0, 5);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	ck_assert_int_eq(gpushm_flush_cleanup(), -EIO);
	ck_assert_str_eq(gpushm_error(), "item 1");
	ran_in_order(5);
}
END_TEST

static int use_parents(void *arg)
{
	if (gpushm_pending_cleanup(NULL) != 0 || gpushm_flush_cleanup() != 0 ||
	    gpushm_resume_cleanup() != -EINVAL || defer_flush_for_space())
		return 1;
	add(ITEMS - 1, 1, 0);
	return n_run == 1 ? 2 : 3;
}

START_TEST(a_forked_child_leaves_the_cleanups_to_its_parent)
{
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	add_some(0, 3);
	ck_assert_int_eq(forked(use_parents, NULL), 2);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 3);
}
END_TEST

static void *add_and_flush(void *arg)
{
	for (size_t i = *(const size_t *)arg; i < ITEMS; i += 4) {
		gpushm_defer_cleanup();
		add(i, 1, 0);
		gpushm_resume_cleanup();
		gpushm_flush_cleanup();
		defer_flush_for_space();
	}
	return NULL;
}

START_TEST(threads_run_each_cleanup_once)
{
	pthread_t threads[4];
	size_t first[4] = { 0, 1, 2, 3 };

	for (size_t i = 0; i < array_size(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, add_and_flush, &first[i]), 0);
	for (size_t i = 0; i < array_size(threads); i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_int_eq(gpushm_flush_cleanup(), 0);
	for (size_t i = 0; i < ITEMS; i++)
		ck_assert_int_eq(items[i].runs, 1);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("defer");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_close_runs_at_once_if_deferring_is_off);
	tcase_add_test(t, the_first_cleanup_above_the_limit_runs_them_all);
	tcase_add_test(t, a_ratio_limits_each_gpu_alone_and_may_be_reached);
	tcase_add_test(t, an_invalid_ratio_is_refused);
	tcase_add_test(t, the_environment_variables_set_the_limits);
	tcase_add_test(t, cleanups_run_with_the_first_close_after_a_section);
	tcase_add_test(t, a_flush_runs_all_cleanups_and_a_section_ends_once);
	tcase_add_test(t, an_allocation_out_of_memory_runs_the_cleanups_of_a_section);
	tcase_add_test(t, the_end_of_a_connection_runs_its_own_cleanups_only);
	tcase_add_test(t, a_failed_cleanup_is_reported_and_the_others_run);
	tcase_add_test(t, a_forked_child_leaves_the_cleanups_to_its_parent);
	tcase_add_test(t, threads_run_each_cleanup_once);
	return suite_run("defer", t, NULL);
}
