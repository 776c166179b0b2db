/* SPDX-License-Identifier: MIT
 *
 * Watches: changes of names and buffers that arrive as events.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/forked.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"
#include "tests/lib/watcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STRANGER 65529

/* socket name: as another user, prints the kind of each event until "end" is published. */
static int stranger_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_watch *watch = NULL;
	struct gpushm_event e = { .struct_size = sizeof(e) };

	if (!user_become(STRANGER, STRANGER) || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_watch_new(conn, &watch) < 0 || gpushm_watch_name(watch, args[1]) < 0 ||
	    gpushm_watch_name(watch, "end") < 0)
		return 1;
	puts("ok");
	do {
		if (gpushm_watch_next(watch, WATCHER_LONG_MS, &e) < 0)
			return 2;
		printf("%d %s\n", e.what, e.name);
	} while (strcmp(e.name, "end") != 0);
	gpushm_watch_free(watch);
	gpushm_disconnect(conn);
	return 0;
}

/* socket name: as another user, opens and watches the buffer, and closes it after the first event.
 */
static int reader_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	struct gpushm_watch *watch = NULL;
	struct gpushm_event e = { .struct_size = sizeof(e) };

	if (!user_become(STRANGER, STRANGER) || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_READ, 0, NULL, &b) < 0 ||
	    gpushm_watch_new(conn, &watch) < 0 || gpushm_watch_buffer(watch, b) < 0)
		return 1;
	puts("ok");
	for (int n = 0; n < 2; n++) {
		if (gpushm_watch_next(watch, WATCHER_LONG_MS, &e) < 0)
			return 2;
		printf("%d %s\n", e.what, e.name);
		if (n == 0 && gpushm_close(b) < 0)
			return 3;
	}
	gpushm_watch_free(watch);
	gpushm_disconnect(conn);
	return 0;
}

static const struct role roles[] = { { "reader", reader_role },
				     { "holder", watcher_holder_role },
				     { "stranger", stranger_role } };

/* ---- names and buffers ---- */

START_TEST(each_event_of_a_name_is_reported_once)
{
	struct role_process writer;
	struct gpushm_buffer *b, *b2;

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	ck_assert_int_eq(gpushm_watch_name(w, "y"), 0);
	watcher_expect_nothing();
	b = watcher_shared("x");
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", gpushm_buffer_id(b));
	watcher_start(&writer, d.socket, "x", "write");
	watcher_kill(&writer);
	watcher_expect(GPUSHM_EVENT_DIRTY, "x", gpushm_buffer_id(b));
	ck_assert_int_eq(gpushm_clean(c, "x"), 0);
	watcher_expect(GPUSHM_EVENT_CLEAN, "x", gpushm_buffer_id(b));
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	watcher_expect(GPUSHM_EVENT_UNLINKED, "x", gpushm_buffer_id(b));
	b2 = watcher_shared("x");
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", gpushm_buffer_id(b2));
	watcher_expect_nothing();
	/* A buffer that comes and goes between two calls gives one event less, and no wrong one. */
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	watcher_expect(GPUSHM_EVENT_UNLINKED, "x", gpushm_buffer_id(b2));
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_close(b2), 0);
	watcher_settle();
}
END_TEST

START_TEST(an_existing_buffer_is_reported)
{
	struct gpushm_buffer *b = watcher_shared("x"), *filling = client_create("y", 1, NULL);

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	ck_assert_int_eq(gpushm_watch_name(w, "y"), 0);
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", gpushm_buffer_id(b));
	watcher_settle();
	ck_assert_int_eq(gpushm_publish(filling, GPUSHM_SEALED), 0);
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "y", gpushm_buffer_id(filling));
	client_close_and_unlink(filling, "y");
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(the_end_of_a_buffer_is_reported)
{
	struct gpushm_buffer *b = client_create("x", 10, NULL), *r = NULL;
	uint64_t id = gpushm_buffer_id(b);

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_buffer(w, b), 0);
	watcher_settle();
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", id);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	watcher_settle();
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	/* A holder still gets this event. */
	watcher_expect(GPUSHM_EVENT_UNLINKED, "x", id);
	watcher_settle();
	ck_assert_int_eq(gpushm_close(r), 0);
	watcher_expect(GPUSHM_EVENT_GONE, "x", id);
	watcher_expect_nothing();
}
END_TEST

START_TEST(a_watch_of_a_freed_buffer_reports_its_end)
{
	struct gpushm_buffer *b = watcher_shared("x");
	uint64_t id = gpushm_buffer_id(b);

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_buffer(w, b), 0);
	client_close_and_unlink(b, "x");
	watcher_expect(GPUSHM_EVENT_GONE, "x", id);
	watcher_expect_nothing();
}
END_TEST

START_TEST(a_stranger_gets_only_events_of_names_it_may_see)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };
	struct gpushm_buffer *b, *last;
	struct role_process p;

	if (!user_may_change())
		return;
	role_start(&p, "stranger", (const char *[]){ d.socket, "x", NULL });
	watcher_hear(&p, "ok");
	client_await(client_waiting() == 1);
	b = watcher_shared("x");
	last = client_create("end", 10, &o);
	ck_assert_int_eq(gpushm_publish(last, GPUSHM_SEALED), 0);
	watcher_hear(&p, "1 end");
	role_finish(&p);
	client_close_and_unlink(b, "x");
	client_close_and_unlink(last, "end");
}
END_TEST

START_TEST(a_holder_gets_events_of_a_buffer_without_a_name)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };
	struct gpushm_buffer *b;
	struct role_process p;

	if (!user_may_change())
		return;
	b = client_create("x", 10, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	role_start(&p, "reader", (const char *[]){ d.socket, "x", NULL });
	watcher_hear(&p, "ok");
	client_await(client_waiting() == 1);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	watcher_hear(&p, "4 x");
	/* The reader has closed its lease, and we have ours: for the reader, the buffer is gone. */
	watcher_hear(&p, "5 x");
	role_finish(&p);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

/* ---- the fd ---- */

static int readable(int ms)
{
	struct pollfd p = { .fd = gpushm_watch_fd(w), .events = POLLIN };

	return poll(&p, 1, ms);
}

START_TEST(an_event_loop_gets_each_event)
{
	struct gpushm_buffer *b;
	struct gpushm_event e = { .struct_size = sizeof(e) };
	int fd;

	watcher_begin();
	fd = gpushm_watch_fd(w);
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	ck_assert_int_eq(gpushm_watch_name(w, "y"), 0);
	/* As an event loop does it: one call each time that the fd is readable. */
	while (client_waiting() == 0)
		if (readable(1) == 1)
			ck_assert_int_eq(gpushm_watch_next(w, 0, &e), -ETIMEDOUT);
	ck_assert_int_eq(readable(0), 0);
	b = watcher_shared("x");
	for (int r = -ETIMEDOUT; r < 0;) {
		ck_assert_int_eq(readable(-1), 1);
		r = gpushm_watch_next(w, 0, &e);
	}
	ck_assert_int_eq(e.what, GPUSHM_EVENT_PUBLISHED);
	/* Two at once: the fd stays readable for the second. */
	ck_assert_int_eq(gpushm_watch_name(w, "z"), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	b = watcher_shared("z");
	for (int n = 0; n < 2;) {
		ck_assert_int_eq(readable(-1), 1);
		n += gpushm_watch_next(w, 0, &e) == 0;
	}
	ck_assert_int_eq(gpushm_watch_fd(w), fd);
	client_close_and_unlink(b, "z");
}
END_TEST

static void *take_one(void *arg)
{
	*(struct gpushm_event *)arg = watcher_next(w);
	return NULL;
}

START_TEST(a_name_that_is_added_reaches_the_waiting_thread)
{
	struct gpushm_buffer *b = watcher_shared("y");
	struct gpushm_event e = { .struct_size = sizeof(e) };
	pthread_t thread;

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	pthread_create(&thread, NULL, take_one, &e);
	client_await(client_waiting() == 1);
	ck_assert_int_eq(gpushm_watch_name(w, "y"), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(e.what, GPUSHM_EVENT_PUBLISHED);
	ck_assert_str_eq(e.name, "y");
	client_close_and_unlink(b, "y");
}
END_TEST

static int use_in_a_child(void *arg)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };

	return gpushm_watch_next(w, 0, &e) == -ECHILD && gpushm_watch_name(w, "y") == -ECHILD &&
			       gpushm_watch_fd(w) == -ECHILD && !gpushm_watch_free(w)
		       ? 0
		       : 1;
}

START_TEST(a_forked_child_leaves_its_parents_events)
{
	struct gpushm_buffer *b;

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	watcher_settle();
	ck_assert_int_eq(forked(use_in_a_child, NULL), 0);
	b = watcher_shared("x");
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", gpushm_buffer_id(b));
	client_close_and_unlink(b, "x");
}
END_TEST

static void teardown(void)
{
	w = gpushm_watch_free(w);
	client_teardown();
}

int main(int argc, char **argv)
{
	TCase *t = tcase_create("watch");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, each_event_of_a_name_is_reported_once);
	tcase_add_test(t, an_existing_buffer_is_reported);
	tcase_add_test(t, the_end_of_a_buffer_is_reported);
	tcase_add_test(t, a_watch_of_a_freed_buffer_reports_its_end);
	tcase_add_test(t, a_stranger_gets_only_events_of_names_it_may_see);
	tcase_add_test(t, a_holder_gets_events_of_a_buffer_without_a_name);
	tcase_add_test(t, an_event_loop_gets_each_event);
	tcase_add_test(t, a_name_that_is_added_reaches_the_waiting_thread);
	tcase_add_test(t, a_forked_child_leaves_its_parents_events);
	return suite_run("watch", t, NULL);
}
