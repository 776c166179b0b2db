/* SPDX-License-Identifier: MIT
 *
 * The sums of an account do not overflow.
 */
#include "daemon/catalog/account.h"
#include "tests/lib/suite.h"

START_TEST(a_sum_without_a_limit_overflows)
{
	const struct config config = { .limits = { .bytes = UINT64_MAX, .tables = UINT64_MAX } };
	struct charge held = { 0 }, more = { 0 };
	struct accounts a;
	struct fault f;

	ck_assert_int_eq(accounts_init(&a, &config), 0);
	ck_assert_int_eq(charge(&a, 1, ACCOUNT_BYTES, 10, 0, &held, &f), 0);
	ck_assert_int_eq(charge(&a, 1, ACCOUNT_BYTES, UINT64_MAX - 9, 0, &more, &f), -EDQUOT);
	ck_assert_int_eq(charge(&a, 1, ACCOUNT_BYTES, UINT64_MAX - 9, UINT64_MAX, &more, &f),
			 -EDQUOT);
	ck_assert_int_eq(recharge(&held, UINT64_MAX, &f), 0);
	ck_assert_int_eq(charge(&a, 1, ACCOUNT_BYTES, 1, 0, &more, &f), -EDQUOT);
	ck_assert_ptr_null(more.account);
	discharge(&held);
	accounts_done(&a);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("account");

	tcase_add_test(t, a_sum_without_a_limit_overflows);
	return suite_run("account", t, NULL);
}
