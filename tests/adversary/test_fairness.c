/* SPDX-License-Identifier: MIT
 *
 * A user with 1,000 connections does not hold up another one. attack.c measures all attacks for
 * longer; RESULTS.md has its table. Needs root, to become two other users.
 */
#include "proto/base/own.h"
#include "tests/adversary/fairness.h"
#include "tests/adversary/hostile.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>

/* What else the machine does is measured, too, and the slowest hundredth of the OPENs is mostly
 * that. So this test looks at the slowest tenth, and tries again; a daemon that is unfair fails
 * each time. */
#define TRIES 4
#define LIMIT_US 3000

static const char *const attacks[] = {
	"describe",	/* few long requests */
	"open-refused", /* many short ones */
	"watch-same",	/* changes that concern many */
	"connect",	/* what the listener does */
};

START_TEST(many_connections_of_one_user_hold_up_another)
{
	const struct fairness_options o = { .connections = 1000, .idle_ms = 300, .beside_ms = 700 };
	struct attacked a;

	for (int i = 0; i < TRIES; i++) {
		fairness_measure(attacks[_i], &o, &a);
		if (a.beside.p90 <= LIMIT_US || a.beside.p90 <= 10 * a.idle.p90)
			return;
	}
	ck_abort_msg("%s: OPEN takes %.0f us (p90) beside it, %.0f us on an idle daemon",
		     attacks[_i], a.beside.p90, a.idle.p90);
}
END_TEST

static const struct role roles[] = { { "hostile", hostile_role },
				     { "honest", fairness_honest_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("fairness");

	role_dispatch(argc, argv, roles, array_size(roles));
	if (!user_may_change())
		return 0;
	tcase_set_timeout(t, 300);
	tcase_add_loop_test(t, many_connections_of_one_user_hold_up_another, 0,
			    array_size(attacks));
	return suite_run("fairness", t, NULL);
}
