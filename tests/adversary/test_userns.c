/* SPDX-License-Identifier: MIT
 *
 * User namespaces: clients whose user or group the daemon's namespace does not map, a daemon whose
 * own user is not mapped, and clients whose namespace does not map the daemon's user. All of them
 * arrive as 65534, the overflow uid. Needs root, to become other users.
 */
#include "proto/base/own.h"
#include "proto/base/userns.h"
#include "tests/lib/client.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"
#include "tests/lib/userns.h"

#include <stdio.h>
#include <string.h>

enum { ALICE = 65531, BOB = 65532 };

#define SHARE "[daemon]\nunmapped-users=share\n"
#define HOST "[pool host]\nkind=host\nsize=64M\n"
#define ONLY_ROOT "0 0 1"
#define UNMAPPED ""

/* ---- which number stands for unmapped users ---- */

static int find_in(void *map)
{
	if (!userns_enter(map))
		return -1;
	return userns_unmapped_uid() == 65534 && userns_unmapped_gid() == 65534 ? 1 : 0;
}

START_TEST(a_namespace_without_all_users_has_an_unmapped_user)
{
	ck_assert_int_eq(forked(find_in, (char *)ONLY_ROOT), 1);
	ck_assert_int_eq(forked(find_in, (char *)UNMAPPED), 1);
}
END_TEST

START_TEST(a_namespace_that_maps_all_users_has_no_unmapped_user)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned long inside = 1, outside = 1, count = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%lu %lu %lu", &inside, &outside, &count), 3);
	fclose(f);
	ck_assert_int_eq(userns_unmapped_uid() == (uid_t)-1, count == 4294967295);
}
END_TEST

/* ---- the daemon ---- */

/* SOCKET UID MAP: the user in role "user", in a namespace with that map; "-": in the test's. */
static int inside_role(char **args)
{
	uid_t uid = (uid_t)atoi(args[1]);
	char uid_text[16];
	char *user[] = { args[0], uid_text, uid_text, NULL };

	if (!user_become(uid, uid))
		return 1;
	if (args[2][0] != '-' && !userns_enter(args[2]))
		return 1;
	snprintf(uid_text, sizeof(uid_text), "%u", getuid());
	return user_role(user);
}

static void begin(struct role_process *p, uid_t uid, const char *map, const char *expected)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", uid);
	role_start(p, "inside", (const char *[]){ d.socket, text, map, NULL });
	user_does(p, "connect", expected);
}

static void expect_error(struct role_process *p, const char *part)
{
	char text[512];

	user_error(p, text, sizeof(text));
	ck_assert_msg(strstr(text, part) != NULL, "%s", text);
}

static void start(const char *config, const char *map)
{
	daemon_start_with(&d, config, &(struct daemon_options){ .userns = map });
}

START_TEST(users_that_are_not_mapped_are_refused)
{
	struct role_process alice, root;

	start(HOST, ONLY_ROOT);
	begin(&alice, ALICE, "-", "UNIDENTIFIED");
	expect_error(&alice, "unmapped-users");
	user_end(&alice);
	begin(&root, 0, "-", "OK");
	user_does(&root, "create ~/x 0600", "OK");
	user_end(&root);
	daemon_stop(&d);
}
END_TEST

START_TEST(users_that_are_not_mapped_have_no_private_names)
{
	struct role_process alice, bob;

	start(SHARE HOST, ONLY_ROOT);
	begin(&alice, ALICE, "-", "OK");
	begin(&bob, BOB, "-", "OK");
	user_does(&alice, "create ~/x 0600", "ACCESS");
	expect_error(&alice, "private names");
	user_does(&alice, "create ~65534/x 0600", "ACCESS");
	user_does(&bob, "stat ~/x", "ACCESS");
	/* For all else they are one user, as the manual says. */
	user_does(&alice, "create x 0600", "OK");
	user_does(&alice, "publish shared", "OK");
	user_does(&bob, "open x write", "OK");
	user_does(&bob, "unlink x", "OK");
	user_end(&alice);
	user_end(&bob);
	daemon_stop(&d);
}
END_TEST

START_TEST(a_daemon_that_is_not_mapped_has_no_administrators)
{
	struct role_process root;

	start(HOST, UNMAPPED);
	ck_assert_uint_eq(daemon_log_count(&d, "does not map"), 1);
	begin(&root, 0, "-", "UNIDENTIFIED");
	user_end(&root);
	daemon_stop(&d);
	start(SHARE HOST, UNMAPPED);
	begin(&root, 0, "-", "OK");
	user_does(&root, "restart", "ACCESS");
	user_end(&root);
	daemon_stop(&d);
}
END_TEST

START_TEST(a_group_that_is_not_mapped_gives_no_access)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0640 };
	struct gpushm_buffer *b = NULL;
	struct role_process alice;

	start(SHARE HOST, ONLY_ROOT);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	o.gid = 65534;
	o.flags = GPUSHM_SET_GID;
	b = client_create("x", 100, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	begin(&alice, ALICE, "-", "OK");
	user_does(&alice, "open x read", "ACCESS");
	user_end(&alice);
	client_close_and_unlink(b, "x");
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}
END_TEST

/* ---- the library ---- */

START_TEST(a_daemon_of_a_user_that_is_not_mapped_is_refused)
{
	struct role_process alice;

	start(HOST, NULL);
	/* Her own uid is shown as 65534, too, or as 0. */
	begin(&alice, ALICE, UNMAPPED, "");
	expect_error(&alice, "GPUSHM_UNMAPPED_DAEMON");
	user_end(&alice);
	begin(&alice, ALICE, "0 65531 1", "");
	expect_error(&alice, "GPUSHM_UNMAPPED_DAEMON");
	user_end(&alice);
	daemon_stop(&d);
}
END_TEST

START_TEST(the_environment_can_trust_a_daemon_that_is_not_mapped)
{
	struct gpushm_buffer *b;
	struct role_process alice;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };

	start(HOST, NULL);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	b = client_create("x", 100, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	setenv("GPUSHM_UNMAPPED_DAEMON", "trust", 1);
	begin(&alice, ALICE, "0 65531 1", "OK");
	user_does(&alice, "open x read", "OK");
	user_does(&alice, "create ~/x 0600", "OK");
	user_end(&alice);
	setenv("GPUSHM_UNMAPPED_DAEMON", "yes", 1);
	begin(&alice, ALICE, "0 65531 1", "");
	expect_error(&alice, "refuse or trust");
	user_end(&alice);
	unsetenv("GPUSHM_UNMAPPED_DAEMON");
	client_close_and_unlink(b, "x");
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}
END_TEST

/* For whom a program trusts its own user's buffers, and no others. */
START_TEST(each_namespace_sees_the_right_owner_of_a_buffer)
{
	struct role_process alice, bob, outside;

	start(HOST, NULL);
	setenv("GPUSHM_UNMAPPED_DAEMON", "trust", 1);
	begin(&alice, ALICE, "65532 65531 1", "OK");
	begin(&outside, ALICE, "-", "OK");
	begin(&bob, BOB, "-", "OK");
	unsetenv("GPUSHM_UNMAPPED_DAEMON");
	user_does(&alice, "create a 0644", "OK");
	user_does(&alice, "publish sealed", "OK");
	user_does(&bob, "create b 0644", "OK");
	user_does(&bob, "publish sealed", "OK");
	/* Her own number in there is Bob's outside. */
	user_does(&alice, "owner a", "65532");
	user_does(&alice, "owner b", "4294967295");
	user_does(&outside, "owner a", "65531");
	user_does(&bob, "owner a", "65531");
	user_does(&bob, "owner b", "65532");
	user_does(&alice, "unlink a", "OK");
	user_does(&bob, "unlink b", "OK");
	user_end(&alice);
	user_end(&outside);
	user_end(&bob);
	daemon_stop(&d);
}
END_TEST

static const struct role roles[] = { { "inside", inside_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("userns");

	role_dispatch(argc, argv, roles, array_size(roles));
	if (!user_may_change() || !userns_may_enter())
		return 0;
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_namespace_without_all_users_has_an_unmapped_user);
	tcase_add_test(t, a_namespace_that_maps_all_users_has_no_unmapped_user);
	tcase_add_test(t, users_that_are_not_mapped_are_refused);
	tcase_add_test(t, users_that_are_not_mapped_have_no_private_names);
	tcase_add_test(t, a_daemon_that_is_not_mapped_has_no_administrators);
	tcase_add_test(t, a_group_that_is_not_mapped_gives_no_access);
	tcase_add_test(t, a_daemon_of_a_user_that_is_not_mapped_is_refused);
	tcase_add_test(t, the_environment_can_trust_a_daemon_that_is_not_mapped);
	tcase_add_test(t, each_namespace_sees_the_right_owner_of_a_buffer);
	return suite_run("userns", t, NULL);
}
