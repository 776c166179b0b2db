/* SPDX-License-Identifier: MIT
 *
 * A socket that accepts connections, and a daemon that does not reply: systemd holds the socket but
 * no daemon runs, or the daemon is stopped. A client gets an error in time, and works again when
 * the daemon replies again.
 */
#include "client/gpushm.h"
#include "tests/lib/kept.h"
#include "tests/lib/suite.h"
#include "tests/lib/watcher.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* For the calls that must time out. */
static void setup(void)
{
	kept_setup();
	setenv("GPUSHM_RECONNECT_MS", "0", 1);
}

/* From now on calls may take as long as they need. */
static void be_patient(void)
{
	setenv("GPUSHM_RECONNECT_MS", "60000", 1);
}

static void expect_no_reply(int result, int number)
{
	ck_assert_int_eq(result, -number);
	ck_assert_msg(strstr(gpushm_error(), "no daemon has answered"), "%s", gpushm_error());
	ck_assert_msg(strstr(gpushm_error(), "systemctl status gpushmd"), "%s", gpushm_error());
}

START_TEST(a_connect_to_a_stopped_daemon_times_out)
{
	struct gpushm *other = NULL;

	ck_assert_int_eq(kill(k.pid, SIGSTOP), 0);
	expect_no_reply(gpushm_connect(k.socket, &other), ECONNREFUSED);
	ck_assert_ptr_null(other);
	ck_assert_int_eq(kill(k.pid, SIGCONT), 0);
	be_patient();
	ck_assert_msg(gpushm_connect(k.socket, &other) == 0, "%s", gpushm_error());
	gpushm_disconnect(other);
}
END_TEST

START_TEST(a_request_times_out_where_only_the_socket_exists)
{
	struct gpushm_buffer *b = client_create("x", 10, NULL), *again = NULL;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	supervisor_end(&k, SIGKILL);
	expect_no_reply(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &again), ECONNRESET);
	supervisor_start(&k);
	be_patient();
	ck_assert_msg(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &again) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_buffer_lost(b), 0);
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_watch_reports_an_absent_daemon_where_a_socket_exists)
{
	struct gpushm_buffer *b;
	struct gpushm_event e = { .struct_size = sizeof(e) };

	watcher_begin();
	ck_assert_int_eq(gpushm_watch_name(w, "x"), 0);
	watcher_settle();
	supervisor_end(&k, SIGKILL);
	/* First the watch reports that the daemon has gone, then that none comes back. */
	ck_assert_int_eq(gpushm_watch_next(w, GPUSHM_WAIT_FOREVER, &e), -ECONNRESET);
	ck_assert_int_eq(gpushm_watch_next(w, GPUSHM_WAIT_FOREVER, &e), -ECONNRESET);
	supervisor_start(&k);
	be_patient();
	watcher_expect(GPUSHM_EVENT_RESTARTED, "", 0);
	b = watcher_shared("x");
	watcher_expect(GPUSHM_EVENT_PUBLISHED, "x", gpushm_buffer_id(b));
	gpushm_watch_free(w);
	client_close_and_unlink(b, "x");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("no_reply");

	tcase_add_checked_fixture(t, setup, kept_teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_connect_to_a_stopped_daemon_times_out);
	tcase_add_test(t, a_request_times_out_where_only_the_socket_exists);
	tcase_add_test(t, a_watch_reports_an_absent_daemon_where_a_socket_exists);
	return suite_run("no_reply", t, NULL);
}
