/* SPDX-License-Identifier: MIT
 *
 * Buffers that end before they are published: the process that closes one learns it, and so does
 * each process that opens the name afterwards and may know of it.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <stdio.h>
#include <string.h>

enum { OWNER = 65531, FAMILY = 65530, STRANGER = 65533 };

static void expect_text(const char *wanted)
{
	ck_assert_msg(strstr(gpushm_error(), wanted), "no \"%s\" in: %s", wanted, gpushm_error());
}

static void expect_no_text(const char *unwanted)
{
	ck_assert_msg(!strstr(gpushm_error(), unwanted), "\"%s\" in: %s", unwanted, gpushm_error());
}

static void expect_missing(const char *name)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), -ENOENT);
}

/* ---- who drops it ---- */

START_TEST(a_close_reports_contents_that_were_never_published)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);

	ck_assert_int_eq(gpushm_close(b), GPUSHM_UNPUBLISHED);
	expect_text("\"x\"");
	expect_text("gpushm_publish");
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(a_deliberate_end_gets_no_warning)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);

	ck_assert_int_eq(gpushm_discard(b), 0);
	expect_missing("x");
	expect_no_text("publish");
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	expect_missing("x");
	expect_no_text("publish");
	ck_assert_int_eq(gpushm_discard(NULL), 0);
}
END_TEST

START_TEST(a_published_buffer_can_not_be_discarded)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_discard(b), -EBUSY);
	expect_text("gpushm_unlink");
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

/* ---- those who ask for the name ---- */

START_TEST(an_error_tells_that_a_name_was_dropped_and_by_whom)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);
	struct gpushm_stat *stat;
	char pid[32];

	snprintf(pid, sizeof(pid), "process %d (", getpid());
	gpushm_close(b);
	expect_missing("x");
	expect_text("without publishing it");
	expect_text(pid);
	ck_assert_str_eq(gpushm_error_code(), "NOT_FOUND");
	ck_assert_int_eq(gpushm_wait(c, "x", 20), -ETIMEDOUT);
	expect_text("without publishing it");
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 20, NULL, &b), -ETIMEDOUT);
	expect_text(pid);
	ck_assert_int_eq(gpushm_stat(c, "x", 0, 0, &stat), -ENOENT);
	expect_text("without publishing it");
	ck_assert_int_eq(gpushm_unlink(c, "x"), -ENOENT);

	/* A new buffer of the name ends the memory of the old one. */
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	client_close_and_unlink(b, "x");
	expect_missing("x");
	expect_no_text("publish");
}
END_TEST

/* socket name: creates the name and dies with it. */
static int dying_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (gpushm_connect(args[0], &conn) < 0 || gpushm_create(conn, args[1], 100, NULL, &b) < 0)
		return 1;
	puts("ok");
	/* No exit handler runs: the process leaves its buffer open on purpose. */
	_exit(getchar() == EOF ? 0 : 2);
}

START_TEST(a_creator_that_died_is_named)
{
	struct role_process p;
	char line[8], pid[32];
	struct gpushm_buffer *b;

	role_start(&p, "dying", (const char *[]){ d.socket, "x", NULL });
	role_read_line(&p, line, sizeof(line));
	snprintf(pid, sizeof(pid), "process %d (", p.pid);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), -EAGAIN);
	role_finish(&p);
	client_await(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b) == -ENOENT);
	expect_text(pid);
	expect_text("ended");
	expect_text("before it published it");
	client_await(client_used_bytes() == 0);
}
END_TEST

/* Who might have opened the buffer learns of its end; only the owner's uid and the time are for
 * others than the owner and administrators. */
START_TEST(only_those_with_access_learn_of_a_dropped_name)
{
	struct role_process owner, member, stranger;
	char text[512], uid[32];

	if (!user_may_change())
		return;
	user_start(&owner, d.socket, OWNER, FAMILY);
	user_start(&member, d.socket, OWNER + 1, FAMILY);
	user_start(&stranger, d.socket, STRANGER, STRANGER);
	snprintf(uid, sizeof(uid), "uid %d", OWNER);
	user_does(&owner, "create x 0640", "OK");
	user_does(&owner, "close", "OK");

	user_does(&stranger, "open x read", "NOT_FOUND");
	user_error(&stranger, text, sizeof(text));
	ck_assert_msg(!strstr(text, "publish") && !strstr(text, uid), "%s", text);
	user_does(&member, "open x read", "NOT_FOUND");
	user_error(&member, text, sizeof(text));
	ck_assert_msg(strstr(text, "without publishing it") && strstr(text, uid), "%s", text);
	ck_assert_msg(!strstr(text, "process"), "%s", text);
	user_does(&owner, "open x read", "NOT_FOUND");
	user_error(&owner, text, sizeof(text));
	ck_assert_msg(strstr(text, "process"), "%s", text);
	expect_missing("x");
	expect_text("process");

	user_end(&owner);
	user_end(&member);
	user_end(&stranger);
}
END_TEST

/* The daemon remembers 16 names of a user: more of one user neither cost memory nor replace those
 * of others. */
START_TEST(a_user_has_a_limited_number_of_remembered_names)
{
	struct role_process other;
	char name[32];

	if (user_may_change()) {
		user_start(&other, d.socket, OWNER, FAMILY);
		user_does(&other, "create theirs 0644", "OK");
		user_does(&other, "close", "OK");
		user_end(&other);
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "x%d", i);
		gpushm_close(client_create(name, 100, NULL));
	}
	expect_missing("x999");
	expect_text("without publishing it");
	expect_missing("x984");
	expect_text("without publishing it");
	expect_missing("x983");
	expect_no_text("publish");
	if (user_may_change()) {
		expect_missing("theirs");
		expect_text("without publishing it");
	}
}
END_TEST

/* 300 users: the number of names is bounded for all of them together. */
START_TEST(all_users_have_a_limited_number_of_remembered_names)
{
	struct role_process user;

	if (!user_may_change())
		return;
	for (int i = 0; i < 300; i++) {
		char command[32];

		user_start(&user, d.socket, (uid_t)(60000 + i), FAMILY);
		snprintf(command, sizeof(command), "create u%d 0644", i);
		user_does(&user, command, "OK");
		user_does(&user, "close", "OK");
		user_end(&user);
	}
	expect_missing("u299");
	expect_text("without publishing it");
	expect_missing("u44");
	expect_text("without publishing it");
	expect_missing("u43");
	expect_no_text("publish");
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "dying", dying_role }, { "user", user_role } };
	TCase *t = tcase_create("unpublished");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_add_test(t, a_close_reports_contents_that_were_never_published);
	tcase_add_test(t, a_deliberate_end_gets_no_warning);
	tcase_add_test(t, a_published_buffer_can_not_be_discarded);
	tcase_add_test(t, an_error_tells_that_a_name_was_dropped_and_by_whom);
	tcase_add_test(t, a_creator_that_died_is_named);
	tcase_add_test(t, only_those_with_access_learn_of_a_dropped_name);
	tcase_add_test(t, a_user_has_a_limited_number_of_remembered_names);
	tcase_add_test(t, all_users_have_a_limited_number_of_remembered_names);
	return suite_run("unpublished", t, NULL);
}
