/* SPDX-License-Identifier: MIT
 *
 * Refusals are counted by code.
 */
#include "daemon/util/refusals.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

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

int main(void)
{
	TCase *tc = tcase_create("refusals");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, each_refusal_is_counted_under_its_code);
	tcase_add_test(tc, what_is_no_code_is_not_counted);
	return suite_run("refusals", tc, NULL);
}
