/* SPDX-License-Identifier: MIT
 *
 * Turns: who is served next, and how long a round takes. Work here spins for a time and notes its
 * letter.
 */
#include "daemon/catalog/turns.h"
#include "proto/base/clock.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

enum { MANY = 20, LONG_NS = 200000 };

struct job {
	struct work work;
	char letter;
	unsigned pieces;	    /* run() is called so often */
	struct charge *charge;	    /* discharged by run(); or NULL */
	struct charge *own, *other; /* of its user, and of one who has work, too; or NULL */
};

static uv_loop_t loop;
static struct turns turns;
static struct accounts accounts;
static struct config config;
static struct charge a, b;
static char order[256];
static unsigned unfair; /* pieces that began while another user had been served less */

static bool run(struct work *w)
{
	struct job *job = container_of(w, struct job, work);
	uint64_t start = clock_monotonic_ns();
	size_t n = strlen(order);

	order[n] = job->letter;
	order[n + 1] = '\0';
	if (job->own && !list_empty(&job->other->account->work))
		unfair += job->own->account->served_ns > job->other->account->served_ns;
	while (clock_monotonic_ns() - start < LONG_NS)
		continue;
	if (job->charge)
		discharge(job->charge);
	return --job->pieces > 0;
}

static void add(struct job *job, char letter, const struct charge *c)
{
	*job = (struct job){ .letter = letter, .pieces = 1 };
	work_init(&job->work, run);
	turns_add(&turns, c->account, &job->work);
}

static void setup(void)
{
	struct fault f;

	memset(order, 0, sizeof(order));
	unfair = 0;
	config_default_limits(&config.limits);
	ck_assert_int_eq(accounts_init(&accounts, &config), 0);
	ck_assert_int_eq(charge(&accounts, 1000, ACCOUNT_PEERS, 1, 0, &a, &f), 0);
	ck_assert_int_eq(charge(&accounts, 1001, ACCOUNT_PEERS, 1, 0, &b, &f), 0);
	uv_loop_init(&loop);
	turns_init(&turns, &loop);
}

static void teardown(void)
{
	discharge(&a);
	discharge(&b);
	turns_done(&turns);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	accounts_done(&accounts);
}

START_TEST(a_user_with_little_work_goes_before_one_with_much)
{
	static struct job much[MANY], little; /* some are queued at the end */

	for (int i = 0; i < MANY; i++)
		add(&much[i], 'a', &a);
	/* A piece takes longer than a round. */
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_str_eq(order, "a");
	add(&little, 'b', &b);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_str_eq(order, "ab");
}
END_TEST

/* Not each in turn: other programs may run in the middle of a piece, which then takes longer. */
START_TEST(the_user_who_was_served_less_is_next)
{
	struct job of_a[MANY / 2], of_b[MANY / 2];

	for (int i = 0; i < MANY / 2; i++)
		add(&of_a[i], 'a', &a);
	for (int i = 0; i < MANY / 2; i++)
		add(&of_b[i], 'b', &b);
	for (int i = 0; i < MANY / 2; i++) {
		of_a[i].own = of_b[i].other = &a;
		of_b[i].own = of_a[i].other = &b;
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(strlen(order), MANY);
	ck_assert_uint_eq(unfair, 0);
}
END_TEST

START_TEST(a_work_is_finished_before_its_users_next_one)
{
	struct job first, second;

	add(&first, '1', &a);
	add(&second, '2', &a);
	first.pieces = 3;
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(order, "1112");
}
END_TEST

START_TEST(an_account_can_end_in_its_own_turn)
{
	struct job last, dropped;

	add(&last, 'a', &a);
	add(&dropped, 'x', &a);
	last.charge = &a;
	work_drop(&dropped.work);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(order, "a");
	ck_assert_ptr_null(account_find(&accounts, 1000));
}
END_TEST

/* uv_run() returns only when no handle is active. */
START_TEST(the_loop_rests_after_an_account_left_before_its_turn)
{
	struct job dropped;

	add(&dropped, 'x', &a);
	work_drop(&dropped.work);
	discharge(&a);
	ck_assert_ptr_null(account_find(&accounts, 1000));
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(order, "");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("turns");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_user_with_little_work_goes_before_one_with_much);
	tcase_add_test(t, the_user_who_was_served_less_is_next);
	tcase_add_test(t, a_work_is_finished_before_its_users_next_one);
	tcase_add_test(t, an_account_can_end_in_its_own_turn);
	tcase_add_test(t, the_loop_rests_after_an_account_left_before_its_turn);
	return suite_run("turns", t, NULL);
}
