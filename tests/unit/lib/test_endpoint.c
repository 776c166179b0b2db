/* SPDX-License-Identifier: MIT
 *
 * The user whose files the library maps if root's systemd listens for a daemon of user "gpushm".
 * This file includes endpoint.c with a made-up user database, which counts how often endpoint.c
 * reads it, and with a made-up folder /run/gpushm.
 */
#include <pwd.h>
#include <sys/stat.h>
#define getpwnam_r(name, entry, text, size, found) fake_getpwnam_r(name, entry, text, found)
static int fake_getpwnam_r(const char *name, struct passwd *entry, char *text,
			   struct passwd **found);
#define lstat(path, ret) fake_lstat(path, ret)
static int fake_lstat(const char *path, struct stat *ret);
#include "client/lib/base/endpoint.c"

#include "tests/lib/suite.h"

#include <check.h>

#define GPUSHM 64000

static bool there; /* the user */
static unsigned database_reads, folder_reads;

static int fake_getpwnam_r(const char *name, struct passwd *entry, char *text,
			   struct passwd **found)
{
	database_reads++;
	ck_assert_str_eq(name, "gpushm");
	entry->pw_uid = GPUSHM;
	*found = there ? entry : NULL;
	return 0;
}

/* /run is root's, and /run/gpushm GPUSHM's. */
static mode_t modes[2]; /* theirs; 0: there is no such folder */

static int fake_lstat(const char *path, struct stat *ret)
{
	bool is_run = strcmp(path, "/run") == 0;

	folder_reads++;
	ret->st_mode = modes[!is_run];
	ret->st_uid = is_run ? 0 : GPUSHM;
	return ret->st_mode ? 0 : -1;
}

START_TEST(only_the_owner_of_a_protected_folder_is_trusted)
{
	modes[0] = S_IFDIR | 0755;
	ck_assert(!is_owner(0, GPUSHM));
	modes[1] = S_IFDIR | 0775;
	ck_assert(!is_owner(0, GPUSHM));
	modes[1] = S_IFLNK | 0755;
	ck_assert(!is_owner(0, GPUSHM));
	modes[1] = S_IFDIR | 0755;
	modes[0] = S_IFDIR | 01777;
	ck_assert(!is_owner(0, GPUSHM));
	modes[0] = S_IFDIR | 0755;
	ck_assert(!is_owner(0, GPUSHM + 1));
	ck_assert(is_owner(0, GPUSHM));
	database_reads = folder_reads = 0;
	ck_assert(is_owner(0, GPUSHM));
	ck_assert_uint_eq(database_reads + folder_reads, 0);
}
END_TEST

START_TEST(a_user_once_found_is_remembered)
{
	ck_assert(!is_owner(0, GPUSHM));
	there = true; /* a package has created the user meanwhile */
	ck_assert(is_owner(0, GPUSHM));
	database_reads = 0;
	for (int i = 0; i < 100; i++) {
		ck_assert(is_owner(0, GPUSHM));
		ck_assert(!is_owner(0, GPUSHM + 1));
		ck_assert(!is_owner(GPUSHM + 1, GPUSHM));
	}
	ck_assert_uint_eq(database_reads, 0);
}
END_TEST

START_TEST(only_a_file_of_the_daemons_user_is_the_daemons)
{
	ck_assert(is_owner(1000, 1000));
	ck_assert(!is_owner(1000, 0));
	ck_assert(!is_owner(0, 1000));
	ck_assert(!is_owner(0, (uid_t)-1));
	ck_assert(!is_owner(GPUSHM, 0));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("endpoint");

	tcase_add_test(tc, only_the_owner_of_a_protected_folder_is_trusted);
	tcase_add_test(tc, a_user_once_found_is_remembered);
	tcase_add_test(tc, only_a_file_of_the_daemons_user_is_the_daemons);
	return suite_run("endpoint", tc, NULL);
}
