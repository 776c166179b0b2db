/* SPDX-License-Identifier: MIT
 *
 * Events: what the daemon tells of buffers, processes, pools and itself, and whom it tells.
 */
#include "client/gpushm_events.h"
#include "client/gpushm_memory.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/kept.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"
#include "tests/lib/watcher.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OWNER 1001
#define STRANGER 1234
#define LIFE_MAX 4096u

static struct gpushm_events *got;

static void drop(void)
{
	got = gpushm_free(got);
}

/* The events after a number. The next call frees them. */
static void ask(uint64_t after, uint64_t timeout_ms, const char *types)
{
	struct gpushm_events_options o = { sizeof(o), after, timeout_ms, types };

	drop();
	ck_assert_msg(gpushm_events(c, &o, &got) == 0, "%s", gpushm_error());
}

/* The number of the last event so far. */
static uint64_t now(void)
{
	ask(GPUSHM_EVENTS_NEW, 0, NULL);
	ck_assert_uint_eq(got->n_events, 0);
	return got->last;
}

static const char *words(const struct gpushm_logged_event *e)
{
	static char text[600];

	snprintf(text, sizeof(text), "%s %s%s%s", e->type, e->name, *e->former ? " was " : "",
		 e->former);
	return text;
}

/* Fails unless the events of `got` are these: "created a", "renamed b was a". */
static void expect(const char *const *expected, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		ck_assert_msg(i < got->n_events, "\"%s\" is missing", expected[i]);
		ck_assert_str_eq(words(got->events[i]), expected[i]);
	}
	ck_assert_msg(got->n_events == n, "one more: %s",
		      got->n_events > n ? words(got->events[n]) : "");
}
#define EXPECT(...)                                  \
	expect((const char *const[]){ __VA_ARGS__ }, \
	       sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

static struct gpushm_buffer *published(const char *name, enum gpushm_state state)
{
	struct gpushm_buffer *b = client_create(name, 1, NULL);

	ck_assert_int_eq(gpushm_publish(b, state), 0);
	return b;
}

/* ---- a buffer's life ---- */

START_TEST(each_step_of_a_buffers_life_is_an_event)
{
	uint64_t start = now(), id;
	struct gpushm_buffer *a = client_create("a", 100, NULL), *b;
	char pool[64];

	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	id = gpushm_buffer_id(a);
	snprintf(pool, sizeof(pool), "%s", gpushm_buffer_pool(a));
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_suspend(b, 0), 0);
	ck_assert_int_eq(gpushm_resume(b, 1000), 0);
	gpushm_close(b);
	ck_assert_int_eq(gpushm_rename(c, "a", "b", 0), 0);
	b = published("new", GPUSHM_SHARED);
	ck_assert_int_eq(gpushm_rename(c, "new", "b", GPUSHM_REPLACE), 0);
	gpushm_close(a);
	ck_assert_int_eq(gpushm_unlink(c, "b"), 0);
	gpushm_close(b);
	ask(start, 0, NULL);
	EXPECT("created a", "published a", "opened a", "suspended a", "resumed a", "closed a",
	       "renamed b was a", "created new", "published new", "replaced b", "renamed b was new",
	       "closed b", "freed b", "unlinked b", "closed b", "freed b");
	ck_assert_uint_eq(got->events[0]->buffer, id);
	ck_assert_uint_eq(got->events[0]->bytes, 100);
	ck_assert_int_eq(got->events[0]->pid, getpid());
	ck_assert_uint_eq(got->events[0]->uid, geteuid());
	ck_assert_uint_eq(got->events[0]->owner, geteuid());
	ck_assert_str_eq(got->events[0]->pool, pool);
	ck_assert_int_eq(got->events[1]->state, GPUSHM_SEALED);
	ck_assert_int_eq(got->events[2]->access, GPUSHM_READ);
	ck_assert_int_eq(got->events[3]->access, GPUSHM_READ);
	ck_assert_int_eq(got->events[3]->pid, getpid());
	ck_assert_uint_eq(got->events[12]->uid, (uid_t)-1);
	ck_assert_uint_eq(got->lost, 0);
	for (size_t i = 1; i < got->n_events; i++)
		ck_assert_uint_eq(got->events[i]->number, start + 1 + i);
	drop();
}
END_TEST

START_TEST(a_name_that_ends_by_itself_is_told_with_the_reason)
{
	const struct gpushm_create_options transient = { .struct_size = sizeof(transient),
							 .flags = GPUSHM_TRANSIENT };
	uint64_t start = now();
	struct gpushm_buffer *b = client_create("t", 1, &transient);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	gpushm_close(b);
	b = client_create("u", 1, NULL);
	gpushm_discard(b);
	ask(start, 0, NULL);
	EXPECT("created t", "published t", "closed t", "unlinked t", "freed t", "created u",
	       "closed u", "unlinked u", "freed u");
	ck_assert_ptr_nonnull(strstr(got->events[3]->text, "transient"));
	ck_assert_ptr_nonnull(strstr(got->events[7]->text, "before it was published"));
	drop();
}
END_TEST

START_TEST(the_death_of_a_writer_is_told)
{
	struct gpushm_buffer *b = published("x", GPUSHM_SHARED);
	uint64_t start = now();
	struct role_process writer;
	pid_t pid;

	watcher_start(&writer, d.socket, "x", "write");
	pid = writer.pid;
	watcher_kill(&writer);
	client_await((ask(start, 0, NULL), got->n_events == 3));
	EXPECT("opened x", "died x", "dirty x");
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(got->events[i]->pid, pid);
	ck_assert_int_eq(got->events[1]->access, GPUSHM_WRITE);
	start = got->last;
	ck_assert_int_eq(gpushm_clean(c, "x"), 0);
	ask(start, 0, NULL);
	EXPECT("cleaned x");
	drop();
	client_close_and_unlink(b, "x");
}
END_TEST

/* socket: opens x, closes its connection, and lives on without the lease's end. */
static int quitter_role(char **args)
{
	struct raw r;
	char line[8];

	raw_greet(&r, args[0]);
	raw_open(&r, "x");
	raw_close(&r);
	puts("ok");
	return fgets(line, sizeof(line), stdin) ? 1 : 0;
}

START_TEST(a_process_that_keeps_memory_is_told_once)
{
	struct gpushm_buffer *b = published("x", GPUSHM_SEALED);
	uint64_t start = now();
	struct role_process quitter;

	role_start(&quitter, "quitter", (const char *const[]){ d.socket, NULL });
	watcher_hear(&quitter, "ok");
	ask(start, 60000, "suspect,died");
	EXPECT("suspect ");
	ck_assert_int_eq(got->events[0]->pid, quitter.pid);
	ck_assert_uint_eq(daemon_log_count(&d, "still runs, and keeps what it had open"), 1);
	start = got->last;
	ask(start, 2500, "suspect,died");
	ck_assert_uint_eq(got->n_events, 0);
	role_finish(&quitter);
	ask(start, 60000, "suspect,died");
	EXPECT("died x");
	drop();
	client_close_and_unlink(b, "x");
}
END_TEST

/* ---- refusals ---- */

START_TEST(repeated_refusals_are_only_a_few_events)
{
	struct gpushm_buffer *b = published("x", GPUSHM_SEALED), *none = NULL;
	uint64_t start = now();

	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_WRITE, 0, NULL, &none), -EROFS);
		ck_assert_int_eq(gpushm_open(c, "y", GPUSHM_READ, 0, NULL, &none), -ENOENT);
	}
	ask(start, 0, NULL);
	ck_assert_uint_eq(got->n_events, 5);
	ck_assert_str_eq(got->events[0]->type, "refused");
	ck_assert_str_eq(got->events[0]->verb, "open");
	ck_assert_str_eq(got->events[0]->code, "READ_ONLY");
	ck_assert_ptr_nonnull(strstr(got->events[0]->text, "sealed and never written again"));
	drop();
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_violation_is_told_as_a_disconnect)
{
	uint64_t start = now();
	struct raw r;

	raw_greet(&r, d.socket);
	ck_assert_int_eq(raw_send(&r, "\xff", 1), 0);
	raw_await_end(&r);
	raw_close(&r);
	ask(start, 60000, NULL);
	ck_assert_uint_eq(got->n_events, 1);
	ck_assert_str_eq(got->events[0]->type, "disconnected");
	ck_assert_int_eq(got->events[0]->pid, getpid());
	drop();
}
END_TEST

/* ---- the ring ---- */

START_TEST(many_opens_leave_the_events_of_a_buffers_life)
{
	struct gpushm_buffer *b = published("x", GPUSHM_SEALED);
	struct raw r;
	uint64_t start = now();

	gpushm_close(b);
	raw_greet(&r, d.socket);
	for (int i = 0; i < 3000; i++) {
		uint64_t lease = raw_open(&r, "x");

		ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	}
	raw_close(&r);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ask(start - 2, 0, "created,published,unlinked,freed");
	EXPECT("created x", "published x", "unlinked x", "freed x");
	ck_assert_uint_ge(got->lost, 6001 - 2048);
	ask(start, 0, "opened,closed");
	ck_assert_uint_ge(got->lost, 6001 - 2048);
	ck_assert_uint_gt(got->n_events, 100);
	ck_assert_int_eq(got->more, 1);
	drop();
}
END_TEST

START_TEST(many_suspends_leave_the_events_of_a_buffers_life)
{
	struct gpushm_buffer *b = published("x", GPUSHM_SEALED);

	for (int i = 0; i < 3000; i++) {
		ck_assert_int_eq(gpushm_suspend(b, 0), 0);
		ck_assert_int_eq(gpushm_resume(b, 1000), 0);
	}
	client_close_and_unlink(b, "x");
	ask(0, 0, "created,published,unlinked,freed");
	EXPECT("created x", "published x", "unlinked x", "freed x");
	drop();
}
END_TEST

START_TEST(the_log_of_events_is_bounded_and_counts_lost_ones)
{
	uint64_t start = now(), lost = 0, found = 0, total = 5 * 2000;

	for (int i = 0; i < 2000; i++)
		client_close_and_unlink(published("some/longer/name/of/a/buffer", GPUSHM_SEALED),
					"some/longer/name/of/a/buffer");
	for (uint64_t at = start;; at = got->last) {
		ask(at, 0, NULL);
		found += got->n_events;
		lost += got->lost;
		for (size_t i = 0; i < got->n_events; i++)
			ck_assert_uint_gt(got->events[i]->number, at);
		if (!got->more)
			break;
	}
	ck_assert_uint_eq(found + lost, total);
	ck_assert_uint_gt(lost, 0);
	ck_assert_uint_le(found, LIFE_MAX + 2048);
	drop();
}
END_TEST

/* ---- waiting ---- */

static void *publish_later(void *arg)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	client_await(client_waiting() == 1);
	ck_assert_int_eq(gpushm_connect(d.socket, &conn), 0);
	ck_assert_int_eq(gpushm_create(conn, "later", 1, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_unlink(conn, "later"), 0);
	gpushm_close(b);
	gpushm_disconnect(conn);
	return NULL;
}

START_TEST(a_follower_waits_for_events_up_to_its_timeout)
{
	struct gpushm_events_options o = { sizeof(o), now(), GPUSHM_WAIT_FOREVER,
					   "published,unlinked" };
	struct gpushm *own = NULL;
	pthread_t thread;

	ck_assert_int_eq(gpushm_connect(d.socket, &own), 0);
	drop();
	pthread_create(&thread, NULL, publish_later, NULL);
	ck_assert_int_eq(gpushm_events(own, &o, &got), 0);
	/* One reply has both, because it comes a moment after the first. */
	EXPECT("published later", "unlinked later");
	pthread_join(thread, NULL);
	/* At the end of the time there is none. */
	ask(GPUSHM_EVENTS_NEW, 50, NULL);
	ck_assert_uint_eq(got->n_events, 0);
	drop();
	gpushm_disconnect(own);
	client_await(client_waiting() == 0);
}
END_TEST

START_TEST(bad_options_are_refused)
{
	struct {
		struct gpushm_events_options known;
		uint64_t later;
	} newer = { .known.struct_size = sizeof(newer), .later = 1 };
	struct gpushm_events_options o = { .struct_size = 1 };

	ck_assert_int_eq(gpushm_events(c, &newer.known, &got), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "newer libgpushm"));
	newer.later = 0;
	ck_assert_int_eq(gpushm_events(c, &newer.known, &got), 0);
	drop();

	ck_assert_int_eq(gpushm_events(c, &o, &got), -EINVAL);
	o.struct_size = sizeof(o);
	o.types = "created,nonsense";
	ck_assert_int_eq(gpushm_events(c, &o, &got), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "\"nonsense\""));
	ck_assert_int_eq(gpushm_events(NULL, NULL, &got), -EINVAL);
	ck_assert_ptr_null(got);
}
END_TEST

/* ---- restarts ---- */

START_TEST(a_restart_is_told)
{
	uint64_t start, first;

	client_close_and_unlink(published("x", GPUSHM_SEALED), "x");
	ask(0, 0, NULL);
	ck_assert_str_eq(got->events[0]->type, "started");
	first = got->first;
	ck_assert_uint_eq(got->events[0]->number, first);
	start = got->last;
	kept_crash();
	ask(start, 60000, NULL);
	ck_assert_uint_ge(got->n_events, 1);
	ck_assert_str_eq(got->events[0]->type, "started");
	ck_assert_uint_gt(got->first, start);
	ck_assert_uint_eq(got->lost, 0);
	drop();
}
END_TEST

/* ---- whom it tells ---- */

/* socket: as another user, prints each event until "end" is published. */
static int follower_role(char **args)
{
	struct gpushm_events_options o = { sizeof(o), GPUSHM_EVENTS_NEW, 0, NULL };
	struct gpushm_events *events = NULL;
	struct gpushm *conn = NULL;

	if (!user_become(STRANGER, STRANGER) || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_events(conn, &o, &events) < 0)
		return 1;
	puts("ok");
	o.timeout_ms = WATCHER_LONG_MS;
	for (bool end = false; !end;) {
		o.after = events->last;
		gpushm_free(events);
		if (gpushm_events(conn, &o, &events) < 0)
			return 2;
		for (size_t i = 0; i < events->n_events; i++) {
			const struct gpushm_logged_event *e = events->events[i];

			printf("%s %s\n", words(e),
			       e->uid == (uid_t)-1  ? "-"
			       : e->pid == getpid() ? "I"
						    : "other");
			end = end || strcmp(words(e), "published end") == 0;
		}
	}
	gpushm_free(events);
	gpushm_disconnect(conn);
	return 0;
}

START_TEST(a_user_sees_only_the_events_it_may_see)
{
	struct role_process follower, owner, own;

	if (!user_may_change())
		return;
	role_start(&follower, "follower", (const char *const[]){ d.socket, NULL });
	watcher_hear(&follower, "ok");
	user_start(&owner, d.socket, OWNER, OWNER);
	user_start(&own, d.socket, STRANGER, STRANGER);
	user_does(&owner, "create secret 0600", "OK");
	user_does(&owner, "publish sealed", "OK");
	user_does(&owner, "create ~/private 0644", "OK");
	user_does(&owner, "publish sealed", "OK");
	user_does(&owner, "create public 0644", "OK");
	user_does(&owner, "publish sealed", "OK");
	user_does(&owner, "open public read", "OK");
	user_does(&owner, "open missing write", "NOT_FOUND");
	user_does(&owner, "open public write", "READ_ONLY");
	user_does(&owner, "rename public public2", "OK");
	user_does(&owner, "rename public2 ~/hidden", "OK");
	user_does(&owner, "rename ~/hidden public3", "OK");
	user_does(&own, "open secret read", "ACCESS");
	user_does(&own, "open public3 read", "OK");
	user_does(&owner, "unlink public3", "OK");
	user_does(&owner, "create end 0644", "OK");
	user_does(&owner, "publish sealed", "OK");
	watcher_hear(&follower, "published public -");
	watcher_hear(&follower, "renamed public2 was public -");
	watcher_hear(&follower, "unlinked public2 -");
	watcher_hear(&follower, "published public3 -");
	watcher_hear(&follower, "refused  other");
	watcher_hear(&follower, "opened public3 other");
	watcher_hear(&follower, "unlinked public3 -");
	watcher_hear(&follower, "published end -");
	role_finish(&follower);
	ask(0, 0, "refused");
	ck_assert_uint_eq(got->n_events, 2);
	drop();
	ck_assert_int_eq(gpushm_unlink(c, "secret"), 0);
	ck_assert_int_eq(gpushm_unlink(c, "~1001/private"), 0);
	ck_assert_int_eq(gpushm_unlink(c, "end"), 0);
	user_end(&own);
	user_end(&owner);
	client_await(client_used_bytes() == 0);
}
END_TEST

static const struct role roles[] = { { "user", user_role },
				     { "holder", watcher_holder_role },
				     { "follower", follower_role },
				     { "quitter", quitter_role } };

int main(int argc, char **argv)
{
	TCase *plain = tcase_create("events"), *restarts = tcase_create("restarts");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(plain, client_setup, client_teardown);
	tcase_add_test(plain, each_step_of_a_buffers_life_is_an_event);
	tcase_add_test(plain, a_name_that_ends_by_itself_is_told_with_the_reason);
	tcase_add_test(plain, the_death_of_a_writer_is_told);
	tcase_add_test(plain, a_process_that_keeps_memory_is_told_once);
	tcase_add_test(plain, repeated_refusals_are_only_a_few_events);
	tcase_add_test(plain, a_violation_is_told_as_a_disconnect);
	tcase_add_test(plain, many_opens_leave_the_events_of_a_buffers_life);
	tcase_add_test(plain, many_suspends_leave_the_events_of_a_buffers_life);
	tcase_add_test(plain, the_log_of_events_is_bounded_and_counts_lost_ones);
	tcase_add_test(plain, a_follower_waits_for_events_up_to_its_timeout);
	tcase_add_test(plain, bad_options_are_refused);
	tcase_add_test(plain, a_user_sees_only_the_events_it_may_see);
	tcase_set_timeout(plain, 120);
	tcase_add_checked_fixture(restarts, kept_setup, kept_teardown);
	tcase_add_test(restarts, a_restart_is_told);
	tcase_set_timeout(restarts, 120);
	return suite_run("events", plain, restarts, NULL);
}
