/* SPDX-License-Identifier: MIT
 *
 * The rate limit: how many lines of the log a user may cause.
 */
#include "daemon/util/log.h"
#include "daemon/util/ratelimit.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000ull

static const struct ratelimit_cause connections = { LOG_ID_VIOLATION, "connections" },
				    deaths = { LOG_ID_DIRTY, "deaths" }, silent;
static struct ratelimit t;
static FILE *log_file;

/* The log goes to stderr, which is a file of this test. */
static void setup(void)
{
	unsetenv("JOURNAL_STREAM");
	log_open(LOG_INFO);
	log_file = tmpfile();
	ck_assert_int_ge(dup2(fileno(log_file), STDERR_FILENO), 0);
	t = (struct ratelimit){ 0 };
}

static unsigned log_count(const char *text)
{
	char line[4096];
	unsigned n = 0;

	rewind(log_file);
	while (fgets(line, sizeof(line), log_file))
		n += strstr(line, text) != NULL;
	return n;
}

static unsigned passed_of(const struct ratelimit_cause *cause, uid_t uid, unsigned times,
			  uint64_t now)
{
	unsigned n = 0;

	while (times--)
		n += ratelimit_pass(&t, cause, uid, now);
	return n;
}

static unsigned passed(uid_t uid, unsigned times, uint64_t now)
{
	return passed_of(&connections, uid, times, now);
}

START_TEST(a_users_lines_are_limited_and_the_dropped_ones_counted)
{
	ck_assert_uint_eq(passed(7, 1000, SECOND), RATELIMIT_LINES);
	ck_assert_uint_eq(passed(7, 1000, RATELIMIT_SECONDS * SECOND), 0);
	/* The next line reports how many were dropped, and the count starts again. */
	ck_assert_uint_eq(passed(7, 3, (1 + RATELIMIT_SECONDS) * SECOND), 3);
	ck_assert_uint_eq(log_count("1995 more connections of uid 7"), 1);
	ck_assert_uint_eq(log_count("more connections"), 1);
}
END_TEST

START_TEST(each_user_has_a_limit_of_its_own)
{
	ck_assert_uint_eq(passed(7, 1000, SECOND), RATELIMIT_LINES);
	ck_assert_uint_eq(passed(8, 2, SECOND), 2);
	ck_assert_uint_eq(passed(0, 2, SECOND), 2);
}
END_TEST

START_TEST(the_number_of_dropped_lines_is_logged_in_the_end)
{
	passed(7, RATELIMIT_LINES, SECOND);
	passed(8, RATELIMIT_LINES + 4, SECOND);
	ratelimit_settle(&t, 2 * SECOND);
	ck_assert_uint_eq(log_count("more"), 0);
	ratelimit_settle(&t, (1 + RATELIMIT_SECONDS) * SECOND);
	ck_assert_uint_eq(log_count("4 more connections of uid 8"), 1);
	ck_assert_uint_eq(log_count("uid 7"), 0);
	ck_assert_uint_eq(t.n, 0);
}
END_TEST

START_TEST(each_cause_has_a_limit_of_its_own)
{
	ck_assert_uint_eq(passed(7, 1000, SECOND), RATELIMIT_LINES);
	ck_assert_uint_eq(passed_of(&deaths, 7, 1000, SECOND), RATELIMIT_LINES);
	ck_assert_uint_eq(passed_of(&silent, 7, 1000, SECOND), RATELIMIT_LINES);
	ratelimit_settle(&t, (1 + RATELIMIT_SECONDS) * SECOND);
	ck_assert_uint_eq(log_count("995 more connections of uid 7"), 1);
	ck_assert_uint_eq(log_count("995 more deaths of uid 7"), 1);
	ck_assert_uint_eq(log_count("more"), 2);
}
END_TEST

START_TEST(users_beyond_the_table_share_one_limit)
{
	unsigned n = 0;

	for (uid_t uid = 0; uid < RATELIMIT_PAIRS; uid++)
		ck_assert_uint_eq(passed(uid, 1, SECOND), 1);
	for (uid_t uid = RATELIMIT_PAIRS; uid < 1000; uid++)
		n += passed(uid, 10, SECOND);
	ck_assert_uint_eq(n, RATELIMIT_LINES);
	/* Those that were there before keep their own limit. */
	ck_assert_uint_eq(passed(7, 1000, SECOND), RATELIMIT_LINES - 1);
	ratelimit_settle(&t, (1 + RATELIMIT_SECONDS) * SECOND);
	ck_assert_uint_eq(t.n, 0);
	ck_assert_uint_eq(log_count("8715 more lines about many users"), 1);
	ck_assert_uint_eq(passed(1000, 1, (2 + RATELIMIT_SECONDS) * SECOND), 1);
}
END_TEST

START_TEST(a_line_may_come_once_an_hour)
{
	t.hourly = true;
	ck_assert_uint_eq(passed(7, 1, SECOND), 1);
	ck_assert_uint_eq(passed(7, 10, RATELIMIT_HOUR * SECOND), 0);
	ck_assert_uint_eq(passed(8, 2, RATELIMIT_HOUR * SECOND), 1);
	ck_assert_uint_eq(passed_of(&deaths, 7, 2, RATELIMIT_HOUR * SECOND), 1);
	ck_assert_uint_eq(passed(7, 2, (1 + RATELIMIT_HOUR) * SECOND), 1);
	ck_assert_uint_eq(log_count("10 more connections of uid 7 within 3600 s"), 1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ratelimit");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_users_lines_are_limited_and_the_dropped_ones_counted);
	tcase_add_test(tc, each_user_has_a_limit_of_its_own);
	tcase_add_test(tc, the_number_of_dropped_lines_is_logged_in_the_end);
	tcase_add_test(tc, each_cause_has_a_limit_of_its_own);
	tcase_add_test(tc, users_beyond_the_table_share_one_limit);
	tcase_add_test(tc, a_line_may_come_once_an_hour);
	return suite_run("ratelimit", tc, NULL);
}
