/* SPDX-License-Identifier: MIT
 *
 * Owners of names: modes, private names, lists and holders, as other users see them. Needs root, to
 * become other users.
 */
#include "proto/base/own.h"
#include "tests/lib/counted.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { OWNER = 65531, STRANGER = 65529, FAMILY = 65530 };

/* c is root's connection. */
static struct role_process owner, member, stranger;

static void setup(void)
{
	counted_setup(CENSUS_CONFIG);
	user_start(&owner, d.socket, OWNER, FAMILY);
	user_start(&member, d.socket, OWNER + 1, FAMILY);
	user_start(&stranger, d.socket, STRANGER, STRANGER);
}

static void teardown(void)
{
	user_end(&owner);
	user_end(&member);
	user_end(&stranger);
	counted_teardown();
}

/* The owner creates "x" and publishes it as shared; it keeps no lease. */
static void make(const char *mode)
{
	char command[64];

	snprintf(command, sizeof(command), "create x %s", mode);
	user_does(&owner, command, "OK");
	user_does(&owner, "publish shared", "OK");
	user_does(&owner, "close", "OK");
}

static const char *yes_or(bool yes, const char *no)
{
	return yes ? "OK" : no;
}

static void expect_access(struct role_process *p, unsigned bits)
{
	user_does(p, "open x read", yes_or(bits & 4, "ACCESS"));
	if (bits & 4)
		user_does(p, "close", "OK");
	user_does(p, "open x write", yes_or((bits & 6) == 6, "ACCESS"));
	if ((bits & 6) == 6)
		user_does(p, "close", "OK");
	user_does(p, "stat x", yes_or(bits & 4, "ACCESS"));
	user_does(p, "list x", bits & 4 ? "1" : "0");
}

START_TEST(a_mode_gives_group_and_others_their_rights)
{
	static const unsigned modes[] = { 0600, 0640, 0660, 0604, 0606, 0644, 0666, 0620, 0602 };
	char text[8];

	for (size_t i = 0; i < array_size(modes); i++) {
		snprintf(text, sizeof(text), "%04o", modes[i]);
		make(text);
		expect_access(&member, modes[i] >> 3 & 7);
		expect_access(&stranger, modes[i] & 7);
		user_does(&owner, "open x write", "OK");
		user_does(&owner, "close", "OK");
		user_does(&owner, "unlink x", "OK");
	}
}
END_TEST

/* As for a file: the owner gets the owner's bits, even if others have more. */
START_TEST(an_owner_gets_only_the_owners_rights)
{
	make("0066");
	user_does(&owner, "open x read", "ACCESS");
	user_does(&member, "open x write", "OK");
	user_does(&member, "close", "OK");
	user_does(&owner, "unlink x", "OK");
}
END_TEST

START_TEST(only_the_owner_or_an_administrator_unlinks)
{
	make("0666");
	user_does(&stranger, "unlink x", "ACCESS");
	user_does(&member, "unlink x", "ACCESS");
	user_does(&stranger, "unlink nobody's", "NOT_FOUND");
	user_does(&stranger, "create x 0600", "EXISTS");
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(a_private_name_is_closed_to_other_users)
{
	char name[64], command[80];

	user_does(&owner, "create ~/x 0666", "OK");
	user_does(&owner, "publish shared", "OK");
	user_does(&owner, "close", "OK");
	user_does(&owner, "stat ~/x", "OK");
	user_does(&stranger, "stat ~/x", "NOT_FOUND");
	user_does(&stranger, "list ~", "0");
	user_does(&owner, "list ~", "1");
	snprintf(name, sizeof(name), "~%d/x", OWNER);
	snprintf(command, sizeof(command), "open %s read", name);
	user_does(&stranger, command, "ACCESS");
	snprintf(command, sizeof(command), "stat %s", name);
	user_does(&stranger, command, "ACCESS");
	user_does(&owner, command, "OK");
	snprintf(command, sizeof(command), "unlink %s", name);
	user_does(&stranger, command, "ACCESS");
	snprintf(command, sizeof(command), "create ~%d/y 0600", OWNER);
	user_does(&stranger, command, "ACCESS");
	/* Another spelling of the uid is not another name. */
	snprintf(command, sizeof(command), "create ~0%d/y 0600", STRANGER);
	user_does(&stranger, command, "NAME");
	user_does(&stranger, "create ~/x 0600", "OK");
	user_does(&stranger, "close", "OK");
	ck_assert_int_eq(gpushm_wait(c, name, 0), 0);
	ck_assert_int_eq(gpushm_unlink(c, name), 0);
	user_does(&owner, "stat ~/x", "NOT_FOUND");
}
END_TEST

/* "~65531/" is five bytes longer than "~/". */
START_TEST(administrators_reach_the_longest_private_name)
{
	char name[256] = "", command[512], theirs[320];

	memset(name, 'x', 253 - 5);
	snprintf(command, sizeof(command), "create ~/%sx 0600", name);
	user_does(&owner, command, "NAME");
	snprintf(command, sizeof(command), "create ~/%s 0600", name);
	user_does(&owner, command, "OK");
	user_does(&owner, "publish shared", "OK");
	user_does(&owner, "close", "OK");
	snprintf(theirs, sizeof(theirs), "~%d/%s", OWNER, name);
	ck_assert_int_eq(gpushm_wait(c, theirs, 0), 0);
	ck_assert_int_eq(gpushm_unlink(c, theirs), 0);
}
END_TEST

START_TEST(only_the_owner_sees_the_holders)
{
	make("0666");
	user_does(&member, "open x read", "OK");
	user_does(&stranger, "holders x", "0");
	user_does(&member, "holders x", "0");
	user_does(&owner, "holders x", "1");
	user_does(&member, "close", "OK");
	user_does(&owner, "unlink x", "OK");
}
END_TEST

START_TEST(an_unpublished_buffer_is_visible_to_its_owner_only)
{
	user_does(&owner, "create x 0666", "OK");
	user_does(&stranger, "stat x", "NOT_FOUND");
	user_does(&stranger, "list x", "0");
	user_does(&stranger, "open x read", "NOT_PUBLISHED");
	user_does(&owner, "list x", "1");
	user_does(&owner, "close", "OK");
	user_does(&owner, "stat x", "NOT_FOUND");
}
END_TEST

START_TEST(root_gives_a_buffer_to_any_group)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0660 };
	struct gpushm_buffer *b = NULL;

	/* Root gives it to a group of which root is no member. */
	o.gid = FAMILY;
	o.flags = GPUSHM_SET_GID;
	ck_assert_int_eq(gpushm_create(c, "x", 100, &o, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	expect_access(&owner, 6);
	expect_access(&member, 6);
	expect_access(&stranger, 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

static const struct role roles[] = { { "user", user_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("users");

	role_dispatch(argc, argv, roles, array_size(roles));
	if (!user_may_change())
		return 0;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_mode_gives_group_and_others_their_rights);
	tcase_add_test(t, an_owner_gets_only_the_owners_rights);
	tcase_add_test(t, only_the_owner_or_an_administrator_unlinks);
	tcase_add_test(t, a_private_name_is_closed_to_other_users);
	tcase_add_test(t, administrators_reach_the_longest_private_name);
	tcase_add_test(t, only_the_owner_sees_the_holders);
	tcase_add_test(t, an_unpublished_buffer_is_visible_to_its_owner_only);
	tcase_add_test(t, root_gives_a_buffer_to_any_group);
	return suite_run("users", t, NULL);
}
