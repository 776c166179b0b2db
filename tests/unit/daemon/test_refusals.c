/* SPDX-License-Identifier: MIT
 *
 * Refusals: they are counted by code, and a user and a code get one line of the log in an hour.
 */
#include "daemon/util/refusals.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

#define SECOND 1000000000ull

static struct refusals r;

static void setup(void)
{
	memset(&r, 0, sizeof(r));
}

START_TEST(each_refusal_is_counted_under_its_code)
{
	refusals_count(&r, CODE_LIMIT);
	refusals_count(&r, CODE_LIMIT);
	refusals_count(&r, CODE_POOL_FULL);
	ck_assert_uint_eq(r.counts[CODE_LIMIT], 2);
	ck_assert_uint_eq(r.counts[CODE_POOL_FULL], 1);
	ck_assert(r.changed);
}
END_TEST

START_TEST(what_is_no_code_is_not_counted)
{
	refusals_count(&r, CODE_OK);
	refusals_count(&r, CODE_COUNT);
	refusals_count(&r, -1);
	ck_assert(!r.changed);
}
END_TEST

START_TEST(the_same_refusal_is_told_once_an_hour)
{
	ck_assert(refusals_tell(&r, 1000, CODE_LIMIT, SECOND));
	ck_assert(!refusals_tell(&r, 1000, CODE_LIMIT, 3600 * SECOND));
	ck_assert(refusals_tell(&r, 1000, CODE_LIMIT, 3601 * SECOND));
	ck_assert(!refusals_tell(&r, 1000, CODE_LIMIT, 3602 * SECOND));
}
END_TEST

START_TEST(each_user_and_cause_is_told)
{
	ck_assert(refusals_tell(&r, 1000, CODE_LIMIT, SECOND));
	ck_assert(refusals_tell(&r, 1001, CODE_LIMIT, SECOND));
	ck_assert(refusals_tell(&r, 1000, CODE_POOL_FULL, SECOND));
	ck_assert(refusals_tell(&r, 0, CODE_LIMIT, SECOND));
	ck_assert(!refusals_tell(&r, 0, CODE_LIMIT, SECOND));
}
END_TEST

START_TEST(the_oldest_user_is_forgotten_and_told_again)
{
	for (uid_t uid = 0; uid < 2 * REFUSALS_TOLD_MAX; uid++)
		ck_assert(refusals_tell(&r, uid, CODE_LIMIT, uid * SECOND));
	ck_assert(!refusals_tell(&r, 2 * REFUSALS_TOLD_MAX - 1, CODE_LIMIT, 200 * SECOND));
	ck_assert(!refusals_tell(&r, REFUSALS_TOLD_MAX, CODE_LIMIT, 200 * SECOND));
	ck_assert(refusals_tell(&r, 0, CODE_LIMIT, 200 * SECOND));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("refusals");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, each_refusal_is_counted_under_its_code);
	tcase_add_test(tc, what_is_no_code_is_not_counted);
	tcase_add_test(tc, the_same_refusal_is_told_once_an_hour);
	tcase_add_test(tc, each_user_and_cause_is_told);
	tcase_add_test(tc, the_oldest_user_is_forgotten_and_told_again);
	return suite_run("refusals", tc, NULL);
}
