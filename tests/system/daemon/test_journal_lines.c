/* SPDX-License-Identifier: MIT
 *
 * What the log tells an administrator: a refused create once, a pool that is nearly full once, and
 * with audit=yes what each user did. And the counts of refusals, which live through restarts.
 */
#include "proto/base/own.h"
#include "tests/lib/kept.h"
#include "tests/lib/reexec.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)
#define HOST "[pool host]\nkind=host\nsize=64M\n"
#define STRANGER 1234

static void setup(void)
{
	client_setup_with(HOST "[limits]\nmax-buffers=2\n");
}

/* How many requests were refused with that code; 0: the daemon does not name it. */
static uint64_t refusals(const char *code)
{
	struct gpushm_status *s = NULL;
	uint64_t count = 0;

	ck_assert_msg(gpushm_status(c, &s) == 0, "%s", gpushm_error());
	for (size_t i = 0; i < s->n_refusals; i++)
		if (strcmp(s->refusals[i]->code, code) == 0)
			count = s->refusals[i]->count;
	gpushm_free(s);
	return count;
}

static void be_refused(const char *name, int error)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_create(c, name, 1, NULL, &b), -error);
}

START_TEST(a_refused_create_is_logged_once_and_counted_each_time)
{
	struct gpushm_buffer *a = client_create("a", 1, NULL), *b = client_create("b", 1, NULL);

	for (int i = 0; i < 5; i++)
		be_refused("more", EDQUOT);
	ck_assert_uint_eq(daemon_log_count(&d, "is refused with LIMIT: uid"), 1);
	ck_assert_uint_eq(refusals("LIMIT"), 5);
	gpushm_close(b);
	/* An error of the client concerns no administrator. */
	be_refused("a", EEXIST);
	ck_assert_uint_eq(daemon_log_count(&d, "is refused with"), 1);
	ck_assert_uint_eq(refusals("EXISTS"), 1);
	gpushm_close(a);
}
END_TEST

START_TEST(the_count_of_refusals_survives_a_planned_restart)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_open(c, "nowhere", GPUSHM_READ, 0, NULL, &b), -ENOENT);
	ck_assert_uint_eq(refusals("NOT_FOUND"), 1);
	reexec_restart();
	ck_assert_uint_eq(refusals("NOT_FOUND"), 1);
	ck_assert_int_eq(gpushm_open(c, "nowhere", GPUSHM_READ, 0, NULL, &b), -ENOENT);
	ck_assert_uint_eq(refusals("NOT_FOUND"), 2);
}
END_TEST

START_TEST(the_count_of_refusals_survives_a_killed_daemon)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_open(c, "nowhere", GPUSHM_READ, 0, NULL, &b), -ENOENT);
	/* They are written down once a second. */
	sleep(2);
	kept_crash();
	ck_assert_uint_eq(refusals("NOT_FOUND"), 1);
}
END_TEST

START_TEST(a_pool_that_fills_is_logged_once)
{
	for (unsigned round = 1; round <= 2; round++) {
		struct gpushm_buffer *b = client_create("large", 60 * MIB, NULL);

		client_await(daemon_log_count(&d, "pool \"host\" is nearly full") == round);
		sleep(2);
		ck_assert_uint_eq(daemon_log_count(&d, "pool \"host\" is nearly full"), round);
		gpushm_close(b);
		sleep(2);
	}
}
END_TEST

static void let_a_stranger_try(void)
{
	struct role_process stranger;

	user_start(&stranger, d.socket, STRANGER, STRANGER);
	user_does(&stranger, "open a read", "ACCESS");
	user_end(&stranger);
}

START_TEST(the_audit_logs_what_each_user_does)
{
	static const char *const done[] = { "created buffer \"a\"",
					    "published buffer \"a\"",
					    "opened for reading buffer \"a\"",
					    "renamed buffer \"a\" to \"b\"",
					    "replaced buffer \"b\"",
					    "published buffer \"b\"",
					    "unlinked buffer \"b\"" };
	struct gpushm_buffer *a, *b = NULL;

	for (int pass = 0; pass < 2; pass++) {
		a = client_create("a", 1, NULL);
		ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
		ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), 0);
		gpushm_close(b);
		if (geteuid() == 0)
			let_a_stranger_try();
		gpushm_close(a);
		ck_assert_int_eq(gpushm_rename(c, "a", "b", 0), 0);
		a = client_create("new", 1, NULL);
		ck_assert_int_eq(gpushm_publish_as(a, GPUSHM_SEALED, "b", GPUSHM_REPLACE), 0);
		gpushm_close(a);
		ck_assert_int_eq(gpushm_unlink(c, "b"), 0);
		for (size_t i = 0; i < array_size(done); i++)
			ck_assert_msg(daemon_log_count(&d, done[i]) == (unsigned)pass, "%d: %s",
				      pass, done[i]);
		if (geteuid() == 0)
			ck_assert_uint_eq(daemon_log_count(&d, "may not open: "), (unsigned)pass);
		if (pass == 0) {
			daemon_write_config(&d, HOST "[daemon]\naudit=yes\n");
			daemon_reload(&d, "configuration reloaded");
		}
	}
}
END_TEST

/* What a daemon that stops lets go of, its successor may still have. */
START_TEST(a_stopping_daemon_audits_no_buffer_as_freed)
{
	struct gpushm_buffer *b = client_create("a", 1, NULL);

	daemon_write_config(&d, HOST "[daemon]\naudit=yes\n");
	daemon_reload(&d, "configuration reloaded");
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_unlink(c, "a"), 0);
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert_int_eq(daemon_wait(&d), 0);
	ck_assert_uint_eq(daemon_log_count(&d, "unlinked buffer \"a\""), 1);
	ck_assert_uint_eq(daemon_log_count(&d, "is freed"), 0);
	daemon_forget_notifications(&d);
	daemon_restart(&d);
	gpushm_close(b);
	gpushm_disconnect(c);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
}
END_TEST

static const struct role roles[] = { { "user", user_role } };

int main(int argc, char **argv)
{
	TCase *plain = tcase_create("plain"), *kept = tcase_create("kept");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(plain, 60);
	tcase_set_timeout(kept, 60);
	tcase_add_checked_fixture(plain, setup, client_teardown);
	tcase_add_test(plain, a_refused_create_is_logged_once_and_counted_each_time);
	tcase_add_test(plain, the_count_of_refusals_survives_a_planned_restart);
	tcase_add_test(plain, a_pool_that_fills_is_logged_once);
	tcase_add_test(plain, the_audit_logs_what_each_user_does);
	tcase_add_test(plain, a_stopping_daemon_audits_no_buffer_as_freed);
	tcase_add_checked_fixture(kept, kept_setup, kept_teardown);
	tcase_add_test(kept, the_count_of_refusals_survives_a_killed_daemon);
	return suite_run("journal_lines", plain, kept, NULL);
}
