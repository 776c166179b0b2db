/* SPDX-License-Identifier: MIT
 *
 * Clients with as many groups as the kernel allows: what they cost the daemon, and that each of
 * their groups counts. Needs root, to join them.
 */
#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/client.h"
#include "tests/lib/raw.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRANGER = 65529, FIRST = 1000000, GROUPS = 65536, CONNECTIONS = 500 };

/* Joins n groups from first on. */
static bool join(size_t n, gid_t first)
{
	static gid_t gids[GROUPS];

	for (size_t i = 0; i < n; i++)
		gids[i] = first + (gid_t)(n - 1 - i);
	return setgroups(n, gids) == 0;
}

static bool become_stranger(void)
{
	return setresgid(STRANGER, STRANGER, STRANGER) == 0 &&
	       setresuid(STRANGER, STRANGER, STRANGER) == 0;
}

/* socket: connects often with one set of groups, prints ok, and stays until a line comes. */
static int crowd_role(char **args)
{
	static struct raw all[CONNECTIONS];
	char line[8];

	if (!join(GROUPS, FIRST) || !become_stranger())
		return 1;
	for (size_t i = 0; i < CONNECTIONS; i++)
		raw_greet(&all[i], args[0]);
	puts("ok");
	return fgets(line, sizeof(line), stdin) ? 0 : 1;
}

/* socket: connects with ever another set, as root, whose descriptors have no limit. Prints the code
 * of the first refusal, the number of connections before it, and its text. */
static int sets_role(char **args)
{
	static struct raw all[32];
	size_t n = 0;
	char line[8];

	for (; n < array_size(all); n++) {
		if (!join(GROUPS, FIRST + (gid_t)n))
			return 1;
		raw_connect(&all[n], args[0]);
		if (raw_call(&all[n], REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					      SET(version_max, 1))))
			break;
	}
	printf("%d %zu %s\n", all[n].code, n, all[n].text);
	return fgets(line, sizeof(line), stdin) ? 0 : 1;
}

/* socket first last: a user in these two groups and in all between. */
static int member_role(char **args)
{
	char uid[16];
	char *user[] = { args[0], uid, uid, NULL };
	gid_t first = (gid_t)atoi(args[1]);

	if (!join((size_t)atoi(args[2]) - first + 1, first) || !become_stranger())
		return 1;
	snprintf(uid, sizeof(uid), "%d", STRANGER);
	return user_role(user);
}

static void setup(void)
{
	client_setup_with(CENSUS_CONFIG);
}

START_TEST(connections_share_one_copy_of_the_same_groups)
{
	struct role_process crowd;
	long before = census_rss(&d), during, after;
	char line[8];

	role_start(&crowd, "crowd", (const char *[]){ d.socket, NULL });
	role_read_line(&crowd, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
	during = census_rss(&d);
	role_write_line(&crowd, "end");
	role_finish(&crowd);
	client_await(client_status().peers == 1);
	after = census_rss(&d);
	printf("%d connections with %d groups each: RSS %ld KiB, then %ld, in the end %ld\n",
	       CONNECTIONS, GROUPS, before, during, after);
	if (suite_is_sanitized())
		return;
	/* 256 KiB once, and what a connection takes; each set would make 125 MiB. */
	ck_assert_int_lt(during - before, 8 << 10);
	ck_assert_int_lt(after - before, 4 << 10);
}
END_TEST

START_TEST(a_user_with_many_sets_of_groups_reaches_a_limit)
{
	struct role_process sets;
	char line[512], expected[32];

	role_start(&sets, "sets", (const char *[]){ d.socket, NULL });
	role_read_line(&sets, line, sizeof(line));
	/* With its primary group, each set is a little more than a quarter of a MiB. */
	snprintf(expected, sizeof(expected), "%d 3 ", CODE_LIMIT);
	ck_assert_msg(strncmp(line, expected, strlen(expected)) == 0, "%s", line);
	ck_assert_msg(strstr(line, "setpriv") != NULL, "%s", line);
	role_write_line(&sets, "end");
	role_finish(&sets);
}
END_TEST

static void expect_open(gid_t first, gid_t last, const char *expected)
{
	struct role_process member;
	char from[16], to[16];

	snprintf(from, sizeof(from), "%u", first);
	snprintf(to, sizeof(to), "%u", last);
	role_start(&member, "member", (const char *[]){ d.socket, from, to, NULL });
	user_does(&member, "connect", "OK");
	user_does(&member, "open x read", expected);
	user_end(&member);
}

START_TEST(a_buffer_opens_to_members_of_its_group_only)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0640 };
	struct gpushm_buffer *b;

	o.gid = FIRST + 7;
	o.flags = GPUSHM_SET_GID;
	b = client_create("x", 100, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	expect_open(FIRST + 7, FIRST + 7, "OK");
	expect_open(FIRST, FIRST + 7, "OK");
	expect_open(FIRST + 7, FIRST + 20, "OK");
	expect_open(FIRST, FIRST + 6, "ACCESS");
	expect_open(FIRST + 8, FIRST + 9, "ACCESS");
	expect_open(FIRST, FIRST + GROUPS - 1, "OK");
	/* Below and above the primary group. */
	expect_open(1, 100, "ACCESS");
	client_close_and_unlink(b, "x");
	o.gid = STRANGER;
	b = client_create("x", 100, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	expect_open(1, 100, "OK");
	expect_open(FIRST, FIRST, "OK");
	expect_open(STRANGER - 2, STRANGER + 2, "OK");
	client_close_and_unlink(b, "x");
}
END_TEST

/* A share of one descriptor in a hundred is less than a connection needs, but administrators have
 * none. */
START_TEST(only_members_of_the_admin_group_are_administrators)
{
	struct role_process member;
	struct gpushm_buffer *b;

	daemon_start_with(&d,
			  "[daemon]\nadmin-group=1000003\n[limits]\nmax-share=1%\n" CENSUS_CONFIG,
			  &(struct daemon_options){ .max_fds = 100 });
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	role_start(&member, "member", (const char *[]){ d.socket, "1000000", "1000002", NULL });
	user_does(&member, "connect", "LIMIT");
	user_end(&member);
	role_start(&member, "member", (const char *[]){ d.socket, "1000000", "1000005", NULL });
	user_does(&member, "connect", "OK");
	user_does(&member, "unlink x", "OK");
	user_end(&member);
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}
END_TEST

static const struct role roles[] = { { "crowd", crowd_role },
				     { "sets", sets_role },
				     { "member", member_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("groups"), *u = tcase_create("admins");

	role_dispatch(argc, argv, roles, array_size(roles));
	if (!user_may_change())
		return 0;
	tcase_add_checked_fixture(t, setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, connections_share_one_copy_of_the_same_groups);
	tcase_add_test(t, a_user_with_many_sets_of_groups_reaches_a_limit);
	tcase_add_test(t, a_buffer_opens_to_members_of_its_group_only);
	tcase_set_timeout(u, 120);
	tcase_add_test(u, only_members_of_the_admin_group_are_administrators);
	return suite_run("groups", t, u, NULL);
}
