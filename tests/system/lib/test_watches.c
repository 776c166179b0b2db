/* SPDX-License-Identifier: MIT
 *
 * Watches: many of them, hostile ones, and watches across the daemon's deaths.
 */
#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/kept.h"
#include "tests/lib/raw.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/watcher.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct role roles[] = { { "holder", watcher_holder_role } };

/* ---- many ---- */

START_TEST(three_hundred_watches_get_each_event_and_leave_nothing)
{
	enum { N = 300 };
	static struct gpushm_watch *all[N];
	struct gpushm_buffer *b;
	struct gpushm_event e = { .struct_size = sizeof(e) };
	struct census before;

	census_take(&d, c, &before);
	for (int i = 0; i < N; i++) {
		ck_assert_msg(gpushm_watch_new(c, &all[i]) == 0, "%s", gpushm_error());
		ck_assert_int_eq(gpushm_watch_name(all[i], "x"), 0);
		ck_assert_int_eq(gpushm_watch_next(all[i], 0, &e), -ETIMEDOUT);
	}
	client_await(client_waiting() == N);
	b = watcher_shared("x");
	for (int i = 0; i < N; i++) {
		e = watcher_next(all[i]);
		ck_assert_int_eq(e.what, GPUSHM_EVENT_PUBLISHED);
		ck_assert_int_eq(gpushm_watch_next(all[i], 0, &e), -ETIMEDOUT);
	}
	client_await(client_waiting() == N);
	client_close_and_unlink(b, "x");
	for (int i = 0; i < N; i++) {
		e = watcher_next(all[i]);
		ck_assert_int_eq(e.what, GPUSHM_EVENT_UNLINKED);
		gpushm_watch_free(all[i]);
	}
	census_await(&d, c, &before);
}
END_TEST

START_TEST(a_dead_clients_watch_ends)
{
	struct role_process p;
	struct census before;

	census_take(&d, c, &before);
	watcher_start(&p, d.socket, "x", "watch");
	client_await(client_waiting() == 1);
	watcher_kill(&p);
	census_await(&d, c, &before);
}
END_TEST

START_TEST(a_watch_holds_at_most_256_names)
{
	struct gpushm_buffer *b = watcher_shared("x");
	uint64_t id = gpushm_buffer_id(b);
	char name[16];

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_buffer(w, b), 0);
	for (int i = 1; i < 256; i++) {
		snprintf(name, sizeof(name), "x%d", i);
		ck_assert_int_eq(gpushm_watch_name(w, name), 0);
	}
	ck_assert_int_eq(gpushm_watch_name(w, "y"), -ENOSPC);
	client_close_and_unlink(b, "x");
	watcher_expect(GPUSHM_EVENT_GONE, "x", id);
	/* A buffer that is gone no longer takes up space in the watch. */
	ck_assert_int_eq(gpushm_watch_name(w, "y"), 0);
	ck_assert_int_eq(gpushm_watch_name(w, "z"), -ENOSPC);
	ck_assert_int_eq(gpushm_watch_name(w, "a//b"), -EINVAL);
	b = watcher_shared("y");
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "y", gpushm_buffer_id(b));
	client_close_and_unlink(b, "y");
}
END_TEST

START_TEST(a_watch_of_many_long_names_reports_events)
{
	struct gpushm_buffer *b;
	char name[256];
	uint64_t id;
	int n = 0, r;

	watcher_begin();
	memset(name, 'x', sizeof(name) - 1);
	name[255] = '\0';
	do
		memcpy(name + snprintf(name, 4, "%03d", n), "x", 1);
	while ((r = gpushm_watch_name(w, name)) == 0 && ++n < 256);
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_int_ge(n * 255, 59000);
	watcher_expect_nothing();
	memcpy(name, "000", 3);
	b = watcher_shared(name);
	id = gpushm_buffer_id(b);
	watcher_expect(GPUSHM_EVENT_PUBLISHED, name, id);
	client_close_and_unlink(b, name);
	watcher_expect(GPUSHM_EVENT_UNLINKED, name, id);
}
END_TEST

/* ---- the protocol ---- */

static int watch_raw(struct raw *r, Gpushm__Proto__Watched *m, size_t n, uint64_t wait_ms)
{
	Gpushm__Proto__Watched *list[300];

	for (size_t i = 0; i < n; i++)
		list[i] = m;
	return raw_call(r, REQUEST(WATCH, Watch, watch, .watched = list, .n_watched = n,
				   SET(wait_ms, wait_ms)));
}

START_TEST(an_invalid_watch_is_refused_at_once)
{
	struct raw r;
	Gpushm__Proto__Watched none = MESSAGE(Watched, watched),
			       both = MESSAGE(Watched, watched, BYTES(name, "x"), SET(buffer, 1)),
			       mine = MESSAGE(Watched, watched, SET(buffer, 0)),
			       bad = MESSAGE(Watched, watched, BYTES(name, "x//y")),
			       good = MESSAGE(Watched, watched, BYTES(name, "x")),
			       stale = MESSAGE(Watched, watched, SET(buffer, 12345));

	raw_greet(&r, d.socket);
	ck_assert_int_eq(watch_raw(&r, &none, 0, UINT64_MAX), CODE_BAD_REQUEST);
	ck_assert_int_eq(watch_raw(&r, &none, 1, UINT64_MAX), CODE_BAD_REQUEST);
	ck_assert_int_eq(watch_raw(&r, &both, 1, UINT64_MAX), CODE_BAD_REQUEST);
	ck_assert_int_eq(watch_raw(&r, &bad, 1, UINT64_MAX), CODE_NAME);
	ck_assert_int_eq(watch_raw(&r, &good, 257, UINT64_MAX), CODE_LIMIT);
	/* Nothing has changed: the reply comes when the time is over. */
	ck_assert_int_eq(watch_raw(&r, &good, 256, 1), CODE_OK);
	ck_assert_uint_eq(r.reply->watched->n_changed, 0);
	ck_assert_int_eq(watch_raw(&r, &good, 1, 0), CODE_OK);
	ck_assert_uint_eq(r.reply->watched->n_changed, 0);
	ck_assert_int_eq(watch_raw(&r, &mine, 256, 1), CODE_OK);
	ck_assert_uint_eq(r.reply->watched->n_changed, 0);
	/* A buffer that never existed, or that may not be seen, is reported as gone, once. */
	ck_assert_int_eq(watch_raw(&r, &stale, 2, UINT64_MAX), CODE_OK);
	ck_assert_uint_eq(r.reply->watched->n_changed, 2);
	ck_assert_uint_eq(r.reply->watched->changed[1]->index, 1);
	ck_assert_uint_eq(r.reply->watched->changed[1]->word, GPUSHM_NOTICE_GONE);
	stale.has_seen_word = 1;
	stale.seen_word = GPUSHM_NOTICE_GONE;
	ck_assert_int_eq(watch_raw(&r, &stale, 1, 1), CODE_OK);
	ck_assert_uint_eq(r.reply->watched->n_changed, 0);
	raw_close(&r);
}
END_TEST

/* ---- the daemon's death ---- */

START_TEST(another_daemon_is_reported)
{
	struct gpushm_buffer *b = watcher_shared("x"), *b2;
	uint64_t id = gpushm_buffer_id(b);

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	ck_assert_int_eq(gpushm_watch_buffer(w, b), 0);
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", id);
	watcher_settle();
	daemon_crash(&d);
	/* A call does not wait for a daemon that is not there. */
	watcher_expect_nothing();
	daemon_restart(&d);
	watcher_expect(GPUSHM_EVENT_RESTARTED, "", 0);
	watcher_expect(GPUSHM_EVENT_UNLINKED, "x", id);
	watcher_expect(GPUSHM_EVENT_GONE, "x", id);
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_disconnect(c);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	watcher_settle();
	b2 = watcher_shared("x");
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", gpushm_buffer_id(b2));
	client_close_and_unlink(b2, "x");
}
END_TEST

START_TEST(a_watch_reports_that_the_daemon_stays_away)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };

	setenv("GPUSHM_RECONNECT_MS", "5", 1);
	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	watcher_settle();
	daemon_crash(&d);
	ck_assert_int_eq(gpushm_watch_next(w, GPUSHM_WAIT_FOREVER, &e), -ECONNRESET);
	daemon_restart(&d);
	setenv("GPUSHM_RECONNECT_MS", "60000", 1);
	watcher_expect(GPUSHM_EVENT_RESTARTED, "", 0);
	unsetenv("GPUSHM_RECONNECT_MS");
	gpushm_disconnect(c);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
}
END_TEST

START_TEST(the_next_daemons_events_are_reported)
{
	struct gpushm_buffer *b = watcher_shared("x"), *half = client_create("half", 10, NULL);
	struct role_process writer;

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	ck_assert_int_eq(gpushm_watch_buffer(w, half), 0);
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", gpushm_buffer_id(b));
	watcher_settle();
	watcher_start(&writer, k.socket, "x", "write");
	supervisor_end(&k, SIGKILL);
	watcher_kill(&writer);
	supervisor_start(&k);
	watcher_expect(GPUSHM_EVENT_RESTARTED, "", 0);
	/* In the order of the watched names: changes that the daemon's death hid, and changes that
	 * it caused. */
	watcher_expect(GPUSHM_EVENT_DIRTY, "x", gpushm_buffer_id(b));
	watcher_expect(GPUSHM_EVENT_GONE, "half", gpushm_buffer_id(half));
	watcher_settle();
	supervisor_end(&k, SIGTERM);
	supervisor_start(&k);
	watcher_expect(GPUSHM_EVENT_RESTARTED, "", 0);
	watcher_settle();
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	watcher_expect(GPUSHM_EVENT_UNLINKED, "x", gpushm_buffer_id(b));
	ck_assert_int_eq(gpushm_discard(half), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

static void teardown(void)
{
	w = gpushm_watch_free(w);
	client_teardown();
}

static void keep_teardown(void)
{
	w = gpushm_watch_free(w);
	kept_teardown();
}

int main(int argc, char **argv)
{
	TCase *t = tcase_create("watches"), *kept = tcase_create("kept");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, three_hundred_watches_get_each_event_and_leave_nothing);
	tcase_add_test(t, a_dead_clients_watch_ends);
	tcase_add_test(t, a_watch_holds_at_most_256_names);
	tcase_add_test(t, a_watch_of_many_long_names_reports_events);
	tcase_add_test(t, an_invalid_watch_is_refused_at_once);
	tcase_add_test(t, another_daemon_is_reported);
	tcase_add_test(t, a_watch_reports_that_the_daemon_stays_away);
	tcase_add_checked_fixture(kept, kept_setup, keep_teardown);
	tcase_set_timeout(kept, 120);
	tcase_add_test(kept, the_next_daemons_events_are_reported);
	return suite_run("watches", t, kept, NULL);
}
