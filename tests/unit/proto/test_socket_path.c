/* SPDX-License-Identifier: MIT
 *
 * Where a user's daemon and its clients meet. Each test is a child of root's that becomes a user
 * whom no machine has.
 */
#include "proto/socket_path.h"

#include "proto/base/own.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define USER 4000017u
#define IN_TMP "/tmp/gpushm-4000017"
#define SESSION "/run/user/4000017"

static char own[] = "/tmp/own-XXXXXX";

static void setup(void)
{
	strcpy(own, "/tmp/own-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(own));
	ck_assert_int_eq(chown(own, USER, USER), 0);
	unsetenv("XDG_RUNTIME_DIR");
}

static void teardown(void)
{
	rmdir(own);
	unlink(IN_TMP "/gpushmd.sock");
	rmdir(IN_TMP);
	rmdir(SESSION);
}

/* 0 if the user's socket has this path, and is there or not. */
static bool is_at(const char *folder, bool exists)
{
	char path[SOCKET_PATH_SIZE], wanted[200];

	snprintf(wanted, sizeof(wanted), "%s/gpushmd.sock", folder);
	if (socket_path_of_user(path) == exists && strcmp(path, wanted) == 0)
		return true;
	printf("%s, not %s\n", path, wanted);
	return false;
}

static bool become(void)
{
	return setgid(USER) == 0 && setuid(USER) == 0;
}

static int without_session(void *unused)
{
	(void)unused;
	if (!become() || !is_at(IN_TMP, false))
		return 1;
	/* As su(1) leaves it; a folder that is not there; a relative one; one that is too long. */
	setenv("XDG_RUNTIME_DIR", "/run", 1);
	if (!is_at(IN_TMP, false))
		return 2;
	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	if (!is_at(IN_TMP, false))
		return 3;
	setenv("XDG_RUNTIME_DIR", ".", 1);
	return is_at(IN_TMP, false) ? 0 : 4;
}

START_TEST(a_user_without_a_session_has_a_folder)
{
	ck_assert_int_eq(forked(without_session, NULL), 0);
}
END_TEST

static int with_session(void *set)
{
	char folder[64];

	snprintf(folder, sizeof(folder), "%s/gpushm", set ? own : SESSION);
	if (set)
		setenv("XDG_RUNTIME_DIR", own, 1);
	return become() && is_at(folder, false) ? 0 : 1;
}

START_TEST(a_session_is_found_with_and_without_its_variable)
{
	mkdir("/run/user", 0755);
	ck_assert_int_eq(mkdir(SESSION, 0700), 0);
	ck_assert_int_eq(chown(SESSION, USER, USER), 0);
	ck_assert_int_eq(forked(with_session, NULL), 0);
	ck_assert_int_eq(forked(with_session, own), 0);
}
END_TEST

/* Returns 0 if the daemon of the folder in /tmp is found from a session that began later. */
static int with_socket(void *unused)
{
	(void)unused;
	setenv("XDG_RUNTIME_DIR", own, 1);
	return become() && is_at(IN_TMP, true) ? 0 : 1;
}

static int with_foreign_socket(void *unused)
{
	char folder[64];

	(void)unused;
	snprintf(folder, sizeof(folder), "%s/gpushm", own);
	setenv("XDG_RUNTIME_DIR", own, 1);
	if (!become() || !is_at(folder, false))
		return 1;
	unsetenv("XDG_RUNTIME_DIR");
	return is_at(IN_TMP, false) ? 0 : 2;
}

START_TEST(a_socket_that_is_there_comes_first_but_not_one_that_others_made)
{
	ck_assert_int_eq(mkdir(IN_TMP, 0700), 0);
	close(open(IN_TMP "/gpushmd.sock", O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
	ck_assert_int_eq(forked(with_foreign_socket, NULL), 0);
	ck_assert_int_eq(chown(IN_TMP, USER, USER), 0);
	ck_assert_int_eq(forked(with_socket, NULL), 0);
	ck_assert_int_eq(chmod(IN_TMP, 0770), 0);
	ck_assert_int_eq(forked(with_foreign_socket, NULL), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("socket_path");

	if (geteuid() != 0) {
		printf("skipped: only root can become other users\n");
		return 0;
	}
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_user_without_a_session_has_a_folder);
	tcase_add_test(tc, a_session_is_found_with_and_without_its_variable);
	tcase_add_test(tc, a_socket_that_is_there_comes_first_but_not_one_that_others_made);
	return suite_run("socket_path", tc, NULL);
}
