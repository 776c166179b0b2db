/* SPDX-License-Identifier: MIT
 *
 * gpushm_rename() and gpushm_publish_as(): a name changes its buffer in one step, those who have
 * the old one keep it, and those who wait for the name or watch it learn of it.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"
#include "tests/lib/watcher.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OWNER = 65531, STRANGER = 65533 };

/* A published buffer with its text inside. */
static struct gpushm_buffer *publish(const char *name, const char *text)
{
	struct gpushm_buffer *b = client_create(name, 100, NULL);

	ck_assert_int_eq(gpushm_write(b, 0, text, strlen(text) + 1), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

static void expect_content(struct gpushm_buffer *b, const char *text)
{
	char got[100];

	ck_assert_int_eq(gpushm_read(b, 0, got, sizeof(got)), 0);
	ck_assert_str_eq(got, text);
}

/* The buffer of that name has this text; NULL: no buffer has that name. */
static void expect_name(const char *name, const char *text)
{
	struct gpushm_buffer *b = NULL;
	int r = gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b);

	ck_assert_msg(r == (text ? 0 : -ENOENT), "%s: %d: %s", name, r, gpushm_error());
	if (!text)
		return;
	expect_content(b, text);
	ck_assert_int_eq(gpushm_close(b), 0);
}

static void expect_text(const char *wanted)
{
	ck_assert_msg(strstr(gpushm_error(), wanted), "no \"%s\" in: %s", wanted, gpushm_error());
}

/* ---- RENAME ---- */

START_TEST(a_renamed_buffer_has_only_its_new_name)
{
	struct gpushm_buffer *b = publish("x", "one");
	struct gpushm_stat *st = NULL;

	ck_assert_msg(gpushm_rename(c, "x", "a/longer/name", 0) == 0, "%s", gpushm_error());
	expect_name("x", NULL);
	expect_name("a/longer/name", "one");
	ck_assert_int_eq(gpushm_stat(c, "a/longer/name", 0, 0, &st), 0);
	ck_assert_uint_eq(st->id, gpushm_buffer_id(b));
	ck_assert_str_eq(st->name, "a/longer/name");
	gpushm_free(st);
	/* Its process has it as before. */
	ck_assert_str_eq(gpushm_buffer_name(b), "x");
	ck_assert(!(gpushm_buffer_notice(b) & GPUSHM_NOTICE_UNLINKED));
	/* Again, back, and to itself. */
	ck_assert_int_eq(gpushm_rename(c, "a/longer/name", "y", 0), 0);
	ck_assert_int_eq(gpushm_rename(c, "y", "x", GPUSHM_REPLACE), 0);
	ck_assert_int_eq(gpushm_rename(c, "x", "x", 0), 0);
	expect_name("x", "one");
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_refused_rename_changes_nothing)
{
	struct gpushm_buffer *x = publish("x", "one"), *y = publish("y", "two"),
			     *f = client_create("f", 100, NULL);
	static const char *const bad[] = { "", "/", "a//b", "~bob/x", "\xff" };

	ck_assert_int_eq(gpushm_rename(c, "x", "y", 0), -EEXIST);
	expect_text("\"y\" is taken");
	ck_assert_int_eq(gpushm_rename(c, "never", "y", GPUSHM_REPLACE), -ENOENT);
	ck_assert_int_eq(gpushm_rename(c, "f", "z", 0), -EAGAIN);
	expect_text("still being filled");
	ck_assert_int_eq(gpushm_rename(c, "x", "f", GPUSHM_REPLACE), -EAGAIN);
	expect_text("\"f\" is still being filled");
	ck_assert_int_eq(gpushm_rename(c, "x", "z", 1u << 7), -EINVAL);
	ck_assert_int_eq(gpushm_rename(c, "x", NULL, 0), -EINVAL);
	ck_assert_int_eq(gpushm_rename(c, NULL, "x", 0), -EINVAL);
	ck_assert_int_eq(gpushm_rename(NULL, "x", "z", 0), -EINVAL);
	for (size_t i = 0; i < array_size(bad); i++)
		ck_assert_int_eq(gpushm_rename(c, "x", bad[i], 0), -EINVAL);
	expect_name("x", "one");
	expect_name("y", "two");
	ck_assert_int_eq(gpushm_discard(f), 0);
	client_close_and_unlink(x, "x");
	client_close_and_unlink(y, "y");
}
END_TEST

START_TEST(a_replaced_buffer_stays_with_its_holders)
{
	struct gpushm_buffer *old = publish("m", "old"), *new = publish("m.new", "new");
	uint32_t word = gpushm_buffer_notice(old);

	ck_assert_int_eq(gpushm_rename(c, "m.new", "m", GPUSHM_REPLACE), 0);
	ck_assert_int_eq(gpushm_buffer_wait(old, word, WATCHER_LONG_MS, &word), 0);
	ck_assert(word & GPUSHM_NOTICE_UNLINKED);
	ck_assert(!(gpushm_buffer_notice(new) & GPUSHM_NOTICE_UNLINKED));
	expect_content(old, "old");
	expect_name("m", "new");
	expect_name("m.new", NULL);
	/* Its memory goes with its last lease. */
	ck_assert_int_eq(gpushm_close(old), 0);
	client_close_and_unlink(new, "m");
	ck_assert_uint_eq(client_used_bytes(), 0);
}
END_TEST

START_TEST(a_replaced_buffer_without_holders_is_freed)
{
	struct gpushm_buffer *old = publish("m", "old"), *new = publish("m.new", "new");
	uint64_t bytes = client_used_bytes();

	ck_assert_int_eq(gpushm_close(old), 0);
	ck_assert_int_eq(gpushm_rename(c, "m.new", "m", GPUSHM_REPLACE), 0);
	ck_assert_uint_eq(client_used_bytes(), bytes / 2);
	client_close_and_unlink(new, "m");
}
END_TEST

START_TEST(a_rollback_is_one_rename)
{
	struct gpushm_buffer *one = publish("m", "one"), *two = publish("m.next", "two");

	ck_assert_int_eq(gpushm_rename(c, "m", "m.old", 0), 0);
	ck_assert_int_eq(gpushm_rename(c, "m.next", "m", 0), 0);
	expect_name("m", "two");
	ck_assert_int_eq(gpushm_rename(c, "m.old", "m", GPUSHM_REPLACE), 0);
	expect_name("m", "one");
	ck_assert_int_eq(gpushm_close(two), 0);
	client_close_and_unlink(one, "m");
}
END_TEST

START_TEST(a_buffer_can_be_renamed_to_a_private_name_and_back)
{
	struct gpushm_buffer *b = publish("x", "one");
	char full[32];

	snprintf(full, sizeof(full), "~%u/x", getuid());
	ck_assert_int_eq(gpushm_rename(c, "x", "~/x", 0), 0);
	expect_name(full, "one");
	ck_assert_int_eq(gpushm_rename(c, full, "~/y", 0), 0);
	expect_name("~/y", "one");
	ck_assert_int_eq(gpushm_rename(c, "~/y", "y", 0), 0);
	client_close_and_unlink(b, "y");
}
END_TEST

START_TEST(a_stranger_may_not_rename_or_replace)
{
	struct role_process owner, stranger;

	if (!user_may_change())
		return;
	user_start(&owner, d.socket, OWNER, OWNER);
	user_start(&stranger, d.socket, STRANGER, STRANGER);
	user_does(&owner, "create x 0666", "OK");
	user_does(&owner, "publish shared", "OK");
	user_does(&stranger, "create mine 0666", "OK");
	user_does(&stranger, "publish shared", "OK");
	user_does(&stranger, "rename x y", "ACCESS");
	user_does(&stranger, "rename mine x", "EXISTS");
	user_does(&stranger, "replace mine x", "ACCESS");
	user_does(&stranger, "create other 0666", "OK");
	user_does(&stranger, "publish-over x", "ACCESS");
	user_does(&stranger, "publish sealed", "OK");
	user_does(&stranger, "rename mine ~65531/x", "ACCESS");
	/* A name in another one's way is his own again once it is renamed. */
	user_does(&stranger, "rename mine ~/mine", "OK");
	user_does(&owner, "open ~65533/mine read", "ACCESS");
	/* An administrator takes no buffer out of its owner's reach. */
	ck_assert_int_eq(gpushm_rename(c, "x", "~/x", 0), -EACCES);
	expect_text("not to the owner");
	ck_assert_int_eq(gpushm_rename(c, "x", "~65531/x", 0), 0);
	user_does(&owner, "rename ~/x x", "OK");
	user_does(&owner, "replace x x", "OK");
	user_does(&owner, "unlink x", "OK");
	user_does(&stranger, "unlink ~/mine", "OK");
	user_does(&stranger, "unlink other", "OK");
	user_end(&owner);
	user_end(&stranger);
}
END_TEST

/* ---- those who wait, and those who watch ---- */

/* socket name: waits for the name and prints what is in it. */
static int waiter_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char text[100];

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_READ, WATCHER_LONG_MS, NULL, &b) < 0 ||
	    gpushm_read(b, 0, text, sizeof(text)) < 0)
		return 1;
	puts(text);
	gpushm_close(b);
	gpushm_disconnect(conn);
	return 0;
}

START_TEST(a_client_that_waits_for_the_name_is_served)
{
	struct gpushm_buffer *x = publish("x", "one"), *y;
	struct role_process p[2];

	role_start(&p[0], "waiter", (const char *[]){ d.socket, "m", NULL });
	role_start(&p[1], "waiter", (const char *[]){ d.socket, "n", NULL });
	client_await(client_waiting() == 2);
	ck_assert_int_eq(gpushm_rename(c, "x", "m", 0), 0);
	/* The waiter has the buffer, even if the name is gone again. */
	ck_assert_int_eq(gpushm_rename(c, "m", "x", 0), 0);
	watcher_hear(&p[0], "one");
	y = client_create("y", 100, NULL);
	ck_assert_int_eq(gpushm_write(y, 0, "two", 4), 0);
	ck_assert_int_eq(gpushm_publish_as(y, GPUSHM_SEALED, "n", 0), 0);
	watcher_hear(&p[1], "two");
	role_finish(&p[0]);
	role_finish(&p[1]);
	client_close_and_unlink(x, "x");
	client_close_and_unlink(y, "n");
}
END_TEST

START_TEST(a_watch_says_what_was_replaced)
{
	struct gpushm_buffer *old = publish("m", "old"), *new;
	uint64_t id = gpushm_buffer_id(old), next;

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "m"), 0);
	ck_assert_uint_eq(watcher_expect(GPUSHM_EVENT_PUBLISHED, "m", id), 0);
	ck_assert_int_eq(gpushm_watch_buffer(w, old), 0);
	watcher_settle();
	new = client_create("m.new", 100, NULL);
	next = gpushm_buffer_id(new);
	ck_assert_int_eq(gpushm_publish_as(new, GPUSHM_SHARED, "m", GPUSHM_REPLACE), 0);
	watcher_expect(GPUSHM_EVENT_UNLINKED, "m", id);
	ck_assert_uint_eq(watcher_expect(GPUSHM_EVENT_PUBLISHED, "m", next), id);
	/* The watched buffer's own event. */
	ck_assert_uint_eq(watcher_expect(GPUSHM_EVENT_UNLINKED, "m", id), 0);
	ck_assert_int_eq(gpushm_close(old), 0);
	watcher_expect(GPUSHM_EVENT_GONE, "m", id);
	/* The name that a rename ends. */
	ck_assert_int_eq(gpushm_rename(c, "m", "n", 0), 0);
	watcher_expect(GPUSHM_EVENT_UNLINKED, "m", next);
	watcher_expect_nothing();
	ck_assert_int_eq(gpushm_rename(c, "n", "m", 0), 0);
	ck_assert_uint_eq(watcher_expect(GPUSHM_EVENT_PUBLISHED, "m", next), 0);
	gpushm_watch_free(w);
	client_close_and_unlink(new, "m");
}
END_TEST

/* ---- PUBLISH under another name ---- */

START_TEST(a_buffer_is_published_under_its_final_name_only)
{
	struct gpushm_buffer *old = publish("m", "old"), *b = client_create("tmp", 100, NULL),
			     *again = NULL;

	ck_assert_int_eq(gpushm_write(b, 0, "new", 4), 0);
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_SEALED, "m", 0), -EEXIST);
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_SEALED, NULL, 0), -EINVAL);
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_SEALED, "a//b", 0), -EINVAL);
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_SEALED, "m", 1u << 9), -EINVAL);
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_FILLING, "m", GPUSHM_REPLACE), -EINVAL);
	ck_assert_int_eq(gpushm_publish_as(NULL, GPUSHM_SEALED, "m", 0), -EINVAL);
	/* After all these errors it can still be written, and published. */
	ck_assert_str_eq(gpushm_buffer_name(b), "tmp");
	ck_assert_int_eq(gpushm_write(b, 0, "NEW", 4), 0);
	expect_name("m", "old");
	ck_assert_msg(gpushm_publish_as(b, GPUSHM_SEALED, "m", GPUSHM_REPLACE) == 0, "%s",
		      gpushm_error());
	ck_assert_str_eq(gpushm_buffer_name(b), "m");
	ck_assert(gpushm_buffer_notice(old) & GPUSHM_NOTICE_UNLINKED);
	expect_name("m", "NEW");
	expect_name("tmp", NULL);
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_SEALED, "n", 0), -EBUSY);
	/* The name of its creation is free. */
	ck_assert_int_eq(gpushm_create(c, "tmp", 100, NULL, &again), 0);
	ck_assert_int_eq(gpushm_publish_as(again, GPUSHM_SEALED, "tmp", 0), 0);
	ck_assert_int_eq(gpushm_close(old), 0);
	client_close_and_unlink(again, "tmp");
	client_close_and_unlink(b, "m");
}
END_TEST

START_TEST(the_longest_name_is_kept_and_a_longer_one_refused)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);
	char name[GPUSHM_MAX_NAME + 2];

	memset(name, 'n', sizeof(name));
	name[GPUSHM_MAX_NAME + 1] = '\0';
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_SEALED, name, 0), -EINVAL);
	name[GPUSHM_MAX_NAME] = '\0';
	ck_assert_int_eq(gpushm_publish_as(b, GPUSHM_SEALED, name, 0), 0);
	ck_assert_str_eq(gpushm_buffer_name(b), name);
	name[0] = 'm';
	ck_assert_int_eq(gpushm_rename(c, gpushm_buffer_name(b), name, 0), 0);
	client_close_and_unlink(b, name);
}
END_TEST

START_TEST(a_buffer_tells_its_owner)
{
	struct gpushm_buffer *b = publish("x", "one"), *r = NULL;

	ck_assert_uint_eq(gpushm_buffer_uid(b), geteuid());
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), 0);
	ck_assert_uint_eq(gpushm_buffer_uid(r), geteuid());
	ck_assert_uint_eq(gpushm_buffer_uid(NULL), (uid_t)-1);
	ck_assert_int_eq(gpushm_close(r), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

static const struct role roles[] = { { "user", user_role }, { "waiter", waiter_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("rename");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_renamed_buffer_has_only_its_new_name);
	tcase_add_test(t, a_refused_rename_changes_nothing);
	tcase_add_test(t, a_replaced_buffer_stays_with_its_holders);
	tcase_add_test(t, a_replaced_buffer_without_holders_is_freed);
	tcase_add_test(t, a_rollback_is_one_rename);
	tcase_add_test(t, a_buffer_can_be_renamed_to_a_private_name_and_back);
	tcase_add_test(t, a_stranger_may_not_rename_or_replace);
	tcase_add_test(t, a_client_that_waits_for_the_name_is_served);
	tcase_add_test(t, a_watch_says_what_was_replaced);
	tcase_add_test(t, a_buffer_is_published_under_its_final_name_only);
	tcase_add_test(t, the_longest_name_is_kept_and_a_longer_one_refused);
	tcase_add_test(t, a_buffer_tells_its_owner);
	return suite_run("rename", t, NULL);
}
