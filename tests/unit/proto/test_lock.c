/* SPDX-License-Identifier: MIT
 *
 * The order of locks, as a build with -DGPUSHM_DEBUG_LOCKS checks it, and this file always.
 */
#ifndef GPUSHM_DEBUG_LOCKS
#define GPUSHM_DEBUG_LOCKS
#endif
#include "proto/base/lock.h"

#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum rank { FIRST = 1, SECOND, THIRD };

static pthread_mutex_t first, second, third;
static const struct timespec long_ago;

static void hold_the_third(void)
{
	lock_guard(&third, THIRD);
	lock_assert_none_from(THIRD + 1);
}

static void in_order(void)
{
	hold_the_third();
	lock_take(&first, FIRST);
	lock_take(&third, THIRD);
	lock_drop(&first);
	lock_drop(&third);
	lock_take(&second, SECOND);
	lock_assert_none_from(THIRD);
	lock_drop(&second);
	lock_assert_none_from(FIRST);
}

static void in_another_order(void)
{
	lock_take(&second, SECOND);
	lock_take(&first, FIRST);
}

static void the_same_rank_twice(void)
{
	lock_take(&first, SECOND);
	lock_take(&second, SECOND);
}

static void after_one_that_was_tried(void)
{
	if (lock_try(&second, SECOND))
		lock_take(&first, FIRST);
}

static void one_that_is_held_by_the_block(void)
{
	lock_guard(&second, SECOND);
	lock_take(&first, FIRST);
}

static void one_that_is_tried(void)
{
	lock_take(&second, SECOND);
	if (lock_try(&first, FIRST))
		lock_drop(&first);
	lock_drop(&second);
}

static void in_time(void)
{
	lock_take(&second, SECOND);
	lock_take_until(&first, FIRST, &long_ago);
}

static void a_long_call(void)
{
	lock_take(&second, SECOND);
	lock_assert_none_from(FIRST);
}

static void one_that_is_not_held(void)
{
	lock_take(&first, FIRST);
	lock_drop(&second);
}

static const struct {
	void (*run)(void);
	const char *says; /* NULL: nothing is wrong */
} cases[] = {
	{ in_order, NULL },
	{ one_that_is_tried, NULL },
	{ in_another_order, "taken: FIRST while SECOND is held" },
	{ one_that_is_held_by_the_block, "taken: FIRST while SECOND is held" },
	{ the_same_rank_twice, "taken: SECOND while SECOND is held" },
	{ after_one_that_was_tried, "taken: FIRST while SECOND is held" },
	{ in_time, "taken: FIRST while SECOND is held" },
	{ a_long_call, "not from FIRST while SECOND is held" },
	{ one_that_is_not_held, "does not hold" },
};

struct run {
	void (*run)(void);
	int output;
};

static int in_child(void *arg)
{
	const struct run *r = arg;

	dup2(r->output, 2);
	r->run();
	return 0;
}

START_TEST(a_wrong_order_ends_the_process_and_names_both)
{
	_cleanup_(close_fd) int output = memfd_create("output", MFD_CLOEXEC);
	struct run r = { cases[_i].run, output };
	const char *says = cases[_i].says;
	char text[512] = "";

	ck_assert_int_eq(forked(in_child, &r), says ? -SIGABRT : 0);
	ck_assert_int_ge(pread(output, text, sizeof(text) - 1, 0), 0);
	ck_assert_msg(!says || strstr(text, says), "%s", text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("lock");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_loop_test(tc, a_wrong_order_ends_the_process_and_names_both, 0,
			    array_size(cases));
	return suite_run("lock", tc, NULL);
}
