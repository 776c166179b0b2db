/* SPDX-License-Identifier: MIT
 *
 * The sums of an account do not overflow, and a share leaves something to everybody else.
 */
#include "daemon/catalog/account.h"
#include "tests/lib/suite.h"

START_TEST(a_sum_that_would_overflow_is_refused)
{
	const struct config config = { .limits = { .bytes = UINT64_MAX } };
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

START_TEST(a_user_has_256_mib_of_tables)
{
	const struct config config = { .limits = { .bytes = UINT64_MAX } };
	struct charge held = { 0 }, more = { 0 };
	struct accounts a;
	struct fault f;

	ck_assert_int_eq(accounts_init(&a, &config), 0);
	ck_assert_int_eq(charge(&a, 1, ACCOUNT_TABLES, 256u << 20, 0, &held, &f), 0);
	ck_assert_int_eq(charge(&a, 1, ACCOUNT_TABLES, 1, 0, &more, &f), -EDQUOT);
	ck_assert_ptr_nonnull(strstr(f.text, "256.0 MiB held, limit 256.0 MiB: describe fewer"));
	discharge(&held);
	accounts_done(&a);
}
END_TEST

/* Takes as much as it gets; returns how much that is. */
static uint64_t take_all(struct accounts *a, uid_t uid, struct charge *ret)
{
	struct fault f;

	if (charge(a, uid, ACCOUNT_KEPT, 1, 0, ret, &f) < 0)
		return 0;
	while (recharge(ret, ret->amount + 1, &f) == 0)
		;
	return ret->amount;
}

START_TEST(a_user_takes_only_its_share_of_what_is_left)
{
	struct user_limits great = { 9, { .share = 100 } };
	const struct config config = { .limits = { .share = 50 },
				       .user_limits = &great,
				       .n_user_limits = 1 };
	struct charge held[6] = { 0 };
	struct accounts a;

	ck_assert_int_eq(accounts_init(&a, &config), 0);
	a.budgets[ACCOUNT_KEPT].total = 800;
	/* 100 are for administrators. */
	ck_assert_uint_eq(take_all(&a, 1, &held[0]), 350);
	ck_assert_uint_eq(take_all(&a, 2, &held[1]), 175);
	ck_assert_uint_eq(take_all(&a, 3, &held[2]), 87);
	discharge(&held[1]);
	ck_assert_uint_eq(take_all(&a, 4, &held[3]), 131);
	ck_assert_uint_eq(take_all(&a, 9, &held[4]), 132);
	ck_assert_uint_eq(take_all(&a, 5, &held[1]), 0);
	/* Root takes the rest, and no more than a real shortage stops it. */
	ck_assert_int_eq(charge(&a, 0, ACCOUNT_KEPT, 1000, 0, &held[5], &(struct fault){ 0 }), 0);
	for (int i = 0; i < 6; i++)
		discharge(&held[i]);
	ck_assert_uint_eq(a.budgets[ACCOUNT_KEPT].used, 0);
	accounts_done(&a);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("account");

	tcase_add_test(t, a_sum_that_would_overflow_is_refused);
	tcase_add_test(t, a_user_has_256_mib_of_tables);
	tcase_add_test(t, a_user_takes_only_its_share_of_what_is_left);
	return suite_run("account", t, NULL);
}
