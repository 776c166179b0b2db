/* SPDX-License-Identifier: MIT
 *
 * What a process learns about its buffers without a request: from the status page that it shares
 * with the daemon.
 */
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/status_page.h"
#include "tests/lib/forked.h"
#include "tests/lib/kept.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define LONG_MS 60000u /* only a hang takes so long */

/* socket name: opens for writing, prints ok, waits to be killed. */
static int writer_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char line[8];

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_WRITE, 0, NULL, &b) < 0)
		return 1;
	puts("ok");
	return fgets(line, sizeof(line), stdin) ? 2 : 0;
}

static const struct role roles[] = { { "writer", writer_role } };

static void kill_a_writer(const char *name)
{
	struct role_process p;
	char line[8];

	role_start(&p, "writer", (const char *[]){ d.socket, name, NULL });
	role_read_line(&p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
	ck_assert_int_eq(kill(p.pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(&p)));
}

static uint32_t flags(const struct gpushm_buffer *b)
{
	return gpushm_buffer_notice(b) & STATUS_PAGE_FLAGS;
}

static uint32_t changed_from(struct gpushm_buffer *b, uint32_t seen)
{
	uint32_t word = seen;

	ck_assert_msg(gpushm_buffer_wait(b, seen, LONG_MS, &word) == 0, "%s", gpushm_error());
	ck_assert_uint_ne(word, seen);
	return word;
}

static struct gpushm_buffer *shared(const char *name)
{
	struct gpushm_buffer *b = client_create(name, 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

/* ---- with a daemon ---- */

START_TEST(a_writers_death_is_seen_without_a_request)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t seen = gpushm_buffer_notice(b);
	uint64_t before;

	ck_assert_uint_eq(flags(b), GPUSHM_NOTICE_SHARED);
	ck_assert_int_eq(gpushm_buffer_dirty(b), 0);
	kill_a_writer("x");
	before = client_status().requests;
	seen = changed_from(b, seen);
	ck_assert_uint_eq(seen & STATUS_PAGE_FLAGS, GPUSHM_NOTICE_SHARED | GPUSHM_NOTICE_DIRTY);
	ck_assert_int_eq(gpushm_buffer_dirty(b), 1);
	ck_assert_uint_eq(client_status().requests, before + 1); /* this STATUS request itself */
	ck_assert_int_eq(gpushm_clean(c, "x"), 0);
	ck_assert_uint_eq(changed_from(b, seen) & STATUS_PAGE_FLAGS, GPUSHM_NOTICE_SHARED);
	ck_assert_int_eq(gpushm_buffer_dirty(b), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_publication_and_an_unlink_are_seen)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL), *r = NULL;
	uint32_t seen = gpushm_buffer_notice(b);

	ck_assert_uint_eq(seen & STATUS_PAGE_FLAGS, 0);
	ck_assert_int_eq(gpushm_buffer_state(b), GPUSHM_FILLING);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	seen = changed_from(b, seen);
	ck_assert_uint_eq(seen & STATUS_PAGE_FLAGS, GPUSHM_NOTICE_SEALED);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), 0);
	ck_assert_uint_eq(gpushm_buffer_notice(r), seen);
	ck_assert_int_eq(gpushm_buffer_state(r), GPUSHM_SEALED);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_uint_eq(changed_from(r, seen) & STATUS_PAGE_FLAGS,
			  GPUSHM_NOTICE_SEALED | GPUSHM_NOTICE_UNLINKED);
	ck_assert_int_eq(gpushm_close(r), 0);
	ck_assert_uint_eq(flags(b), GPUSHM_NOTICE_SEALED | GPUSHM_NOTICE_UNLINKED);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

START_TEST(a_wait_without_a_change_times_out)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t word = 7;

	ck_assert_int_eq(gpushm_buffer_wait(b, gpushm_buffer_notice(b), 5, &word), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_buffer_wait(b, gpushm_buffer_notice(b), 0, &word), -ETIMEDOUT);
	ck_assert_uint_eq(word, 7);
	/* A change from before the wait ends the wait at once. */
	ck_assert_int_eq(gpushm_buffer_wait(b, 0, 0, &word), 0);
	ck_assert_uint_eq(word, gpushm_buffer_notice(b));
	client_close_and_unlink(b, "x");
}
END_TEST

static int wait_in_a_child(void *arg)
{
	uint32_t word;

	return gpushm_buffer_wait(arg, 0, 0, &word) == -ECHILD ? 0 : 1;
}

START_TEST(a_forked_child_may_not_wait_on_its_parents_buffer)
{
	struct gpushm_buffer *b = shared("x");

	ck_assert_int_eq(forked(wait_in_a_child, b), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_daemon_that_ends_wakes_its_readers)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t seen = gpushm_buffer_notice(b), word;

	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert(WIFEXITED(daemon_wait(&d)));
	word = changed_from(b, seen);
	ck_assert_uint_eq(word & STATUS_PAGE_FLAGS, GPUSHM_NOTICE_GONE);
	ck_assert_int_eq(gpushm_buffer_wait(b, word, LONG_MS, &word), -EIDRM);
	/* The state is the last known one. */
	ck_assert_int_eq(gpushm_buffer_state(b), GPUSHM_SHARED);
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_disconnect(c);
	daemon_restart(&d);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
}
END_TEST

START_TEST(a_killed_daemon_wakes_its_readers)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t seen = gpushm_buffer_notice(b), word;

	daemon_crash(&d);
	ck_assert_int_eq(gpushm_buffer_wait(b, seen, GPUSHM_WAIT_FOREVER, &word), -ECONNRESET);
	ck_assert_uint_eq(gpushm_buffer_notice(b), seen);
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_disconnect(c);
	daemon_restart(&d);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
}
END_TEST

/* ---- with a supervisor of the status page ---- */

struct sleeper {
	struct gpushm_buffer *b;
	uint32_t seen, word;
	int result;
};

static void *sleep_on(void *arg)
{
	struct sleeper *s = arg;

	s->result = gpushm_buffer_wait(s->b, s->seen, GPUSHM_WAIT_FOREVER, &s->word);
	return NULL;
}

/* Several threads wait while the daemon dies and its successor starts. */
static void restart_under(struct sleeper *all, size_t n, int signal)
{
	pthread_t threads[4];

	for (size_t i = 0; i < n; i++) {
		all[i].seen = gpushm_buffer_notice(all[i].b);
		pthread_create(&threads[i], NULL, sleep_on, &all[i]);
	}
	supervisor_end(&k, signal);
	supervisor_start(&k);
	for (size_t i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(all[i].result, 0);
		ck_assert_uint_ne(all[i].word, all[i].seen);
	}
}

START_TEST(the_next_daemon_wakes_sleepers)
{
	static const int signals[] = { SIGKILL, SIGTERM, SIGKILL };
	struct gpushm_buffer *b = shared("x"), *r = NULL;

	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), 0);
	for (size_t i = 0; i < array_size(signals); i++) {
		struct sleeper all[] = { { .b = b }, { .b = b }, { .b = r } };

		restart_under(all, array_size(all), signals[i]);
		ck_assert_uint_eq(all[0].word & STATUS_PAGE_FLAGS, GPUSHM_NOTICE_SHARED);
		ck_assert_uint_eq(supervisor_count(&k, 'b'), 1);
	}
	/* The successor writes the same cell for the same buffer. */
	ck_assert_int_eq(gpushm_close(r), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_uint_eq(flags(b), GPUSHM_NOTICE_SHARED | GPUSHM_NOTICE_UNLINKED);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

START_TEST(a_half_made_buffer_is_gone_after_the_daemons_death)
{
	struct gpushm_buffer *b = client_create("half", 100, NULL), *again;
	struct sleeper s = { .b = b };

	restart_under(&s, 1, SIGKILL);
	ck_assert_uint_eq(s.word & STATUS_PAGE_FLAGS, GPUSHM_NOTICE_GONE);
	/* The next buffer that gets its cell is not mistaken for it. */
	again = client_create("half", 100, NULL);
	ck_assert_uint_eq(flags(b), GPUSHM_NOTICE_GONE);
	ck_assert_uint_eq(flags(again), 0);
	ck_assert_int_eq(gpushm_discard(again), 0);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

/* Each call is shorter than $GPUSHM_RECONNECT_MS. */
START_TEST(a_wait_without_a_daemon_keeps_its_timeout)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t seen = gpushm_buffer_notice(b), word;
	uint64_t begun = clock_monotonic_ms();
	int error;

	supervisor_end(&k, SIGKILL);
	setenv("GPUSHM_RECONNECT_MS", "3000", 1);
	ck_assert_int_eq(gpushm_buffer_wait(b, seen, 100, &word), -ETIMEDOUT);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 2500);
	do
		error = gpushm_buffer_wait(b, seen, 100, &word);
	while (error == -ETIMEDOUT && clock_monotonic_ms() - begun < 20000);
	ck_assert_int_eq(error, -ECONNRESET);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
	ck_assert_int_eq(gpushm_buffer_wait(b, seen, LONG_MS, &word), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

/* No wait has seen the daemon between the two. */
START_TEST(a_second_outage_has_a_time_limit_of_its_own)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t word;

	supervisor_end(&k, SIGKILL);
	ck_assert_int_eq(gpushm_buffer_wait(b, gpushm_buffer_notice(b), 100, &word), -ETIMEDOUT);
	supervisor_start(&k);
	ck_assert_uint_eq(client_status().buffers, 1);
	poll(NULL, 0, 5200);
	supervisor_end(&k, SIGKILL);
	setenv("GPUSHM_RECONNECT_MS", "5000", 1);
	ck_assert_int_eq(gpushm_buffer_wait(b, gpushm_buffer_notice(b), 100, &word), -ETIMEDOUT);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

static void have_forgotten(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char text[64];

	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/notify", k.folder);
	ck_assert_int_gt(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&a, sizeof(a)), 0);
}

START_TEST(a_wait_on_a_lost_status_page_is_refused)
{
	struct gpushm_buffer *b = shared("x"), *r = NULL;
	struct sleeper s = { .b = b };
	uint32_t word;

	have_forgotten("b0");
	restart_under(&s, 1, SIGKILL);
	ck_assert_uint_eq(s.word, GPUSHM_NOTICE_SHARED);
	ck_assert_int_eq(gpushm_buffer_wait(b, s.word, LONG_MS, &word), -ENOTSUP);
	/* A process that opens it now has a cell on the new page. */
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_uint_eq(flags(r), GPUSHM_NOTICE_SHARED | GPUSHM_NOTICE_UNLINKED);
	ck_assert_int_eq(gpushm_close(r), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("buffer_state"), *kept = tcase_create("kept");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_writers_death_is_seen_without_a_request);
	tcase_add_test(t, a_publication_and_an_unlink_are_seen);
	tcase_add_test(t, a_wait_without_a_change_times_out);
	tcase_add_test(t, a_forked_child_may_not_wait_on_its_parents_buffer);
	tcase_add_test(t, a_daemon_that_ends_wakes_its_readers);
	tcase_add_test(t, a_killed_daemon_wakes_its_readers);
	tcase_add_checked_fixture(kept, kept_setup, kept_teardown);
	tcase_set_timeout(kept, 120);
	tcase_add_test(kept, the_next_daemon_wakes_sleepers);
	tcase_add_test(kept, a_half_made_buffer_is_gone_after_the_daemons_death);
	tcase_add_test(kept, a_wait_without_a_daemon_keeps_its_timeout);
	tcase_add_test(kept, a_second_outage_has_a_time_limit_of_its_own);
	if (!supervisor_skips("a_wait_on_a_lost_status_page_is_refused"))
		tcase_add_test(kept, a_wait_on_a_lost_status_page_is_refused);
	return suite_run("buffer_state", t, kept, NULL);
}
