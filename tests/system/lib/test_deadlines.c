/* SPDX-License-Identifier: MIT
 *
 * A daemon that is stopped by SIGSTOP has its socket and replies to nobody. Each kind of request
 * ends when the connection's time is over, and says which process does not reply; when the daemon
 * goes on, the connection is good, and nothing that a late reply brings stays open here or there.
 */
#include "client/gpushm.h"
#include "client/gpushm_events.h"
#include "client/gpushm_metrics.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/limits.h"
#include "tests/lib/client.h"
#include "tests/lib/counted.h"
#include "tests/lib/fake.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MS 60u
#define LONG_MS 60000u

static void stop(void)
{
	int status;

	ck_assert_int_eq(kill(d.pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(d.pid, &status, WUNTRACED), d.pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_eq(gpushm_set_timeout(c, MS), 0);
}

/* What follows may take as long as it needs. */
static void go_on(void)
{
	ck_assert_int_eq(kill(d.pid, SIGCONT), 0);
	ck_assert_int_eq(gpushm_set_timeout(c, LONG_MS), 0);
}

static void expect_timeout(int r)
{
	char named[64];

	snprintf(named, sizeof(named), "its process %d is stopped (state T): kill -CONT", d.pid);
	ck_assert_msg(r == -ETIMEDOUT, "%d: %s", r, gpushm_error());
	ck_assert_str_eq(gpushm_error_code(), "NO_REPLY");
	ck_assert_msg(strstr(gpushm_error(), named), "%s", gpushm_error());
}

static void expect_connection_is_good(void)
{
	ck_assert_int_eq(gpushm_wait(c, "none", 0), -ENOENT);
	ck_assert_str_eq(gpushm_error_code(), "NOT_FOUND");
}

static struct gpushm_buffer *shared(const char *name, enum gpushm_state state)
{
	struct gpushm_buffer *b = client_create(name, 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, state), 0);
	return b;
}

static void setup(void)
{
	counted_setup(CENSUS_CONFIG);
}

/* ---- each request ---- */

static struct gpushm_buffer *old, *fresh;

static int ask_stat(void)
{
	struct gpushm_stat *s = NULL;

	return gpushm_stat(c, "old", 0, 0, &s);
}

static int ask_list(void)
{
	struct gpushm_stat **s = NULL;
	size_t n;

	return gpushm_list(c, NULL, 0, &s, &n);
}

static int ask_pools(void)
{
	struct gpushm_pool **pools = NULL;
	size_t n;

	return gpushm_pools(c, &pools, &n);
}

static int ask_status(void)
{
	struct gpushm_status *s = NULL;

	return gpushm_status(c, &s);
}

static int ask_metrics(void)
{
	struct gpushm_metrics *m = NULL;

	return gpushm_metrics(c, &m);
}

static int ask_events(void)
{
	const struct gpushm_events_options o = { .struct_size = sizeof(o), .timeout_ms = 10 };
	struct gpushm_events *e = NULL;

	return gpushm_events(c, &o, &e);
}

static int ask_streams(void)
{
	struct gpushm_stream_info **streams = NULL;
	size_t n;

	return gpushm_streams(c, NULL, &streams, &n);
}

static int open_now(void)
{
	struct gpushm_buffer *b = NULL;

	return gpushm_open(c, "old", GPUSHM_READ, 0, NULL, &b);
}

static int open_later(void)
{
	struct gpushm_buffer *b = NULL;

	return gpushm_open(c, "old", GPUSHM_READ, 10, NULL, &b);
}

static int open_or_create(void)
{
	struct gpushm_buffer *b = NULL;

	return gpushm_open_or_create(c, "old", GPUSHM_READ, 10, NULL, 1, NULL, &b);
}

static int create(void)
{
	struct gpushm_buffer *b = NULL;

	return gpushm_create(c, "new", 100, NULL, &b);
}

static int create_arrays(void)
{
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "a", .dtype = { 2, 32, 1, 0 }, .ndim = 0
	};
	struct gpushm_buffer *b = NULL;

	return gpushm_create_arrays(c, "new", &spec, 1, NULL, &b);
}

static int set_attrs(void)
{
	const struct gpushm_attr a = { sizeof(a), "k", "v", 1 };

	return gpushm_set_attrs(fresh, &a, 1);
}

static int describe(void)
{
	const struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "a", .dtype = { 2, 32, 1, 0 }, .ndim = 0
	};

	return gpushm_describe(fresh, &spec, 1);
}

static int publish(void)
{
	return gpushm_publish(fresh, GPUSHM_SEALED);
}

static int rename_it(void)
{
	return gpushm_rename(c, "old", "older", 0);
}

static int unlink_it(void)
{
	return gpushm_unlink(c, "old");
}

static int clean(void)
{
	return gpushm_clean(c, "old");
}

static int flush(void)
{
	return gpushm_flush(c, NULL);
}

static int restart(void)
{
	return gpushm_restart(c);
}

static int (*const requests[])(void) = {
	ask_stat,	ask_list,   ask_pools, ask_status,    ask_metrics, ask_events, ask_streams,
	open_now,	open_later, create,    create_arrays, set_attrs,   describe,   publish,
	open_or_create, rename_it,  unlink_it, clean,	      flush,	   restart,
};

/* A daemon that was restarted has other descriptors. */
static void make_buffers(int (*request)(void))
{
	if (request == restart)
		before.fds = 0;
	old = shared("old", GPUSHM_SHARED);
	fresh = client_create("fresh", 100, NULL);
}

/* Whatever became of them. */
static void drop_buffers(void)
{
	ck_assert_int_ge(gpushm_close(fresh), 0);
	ck_assert_int_eq(gpushm_close(old), 0);
	gpushm_unlink(c, "fresh");
	gpushm_unlink(c, "old");
	gpushm_unlink(c, "older");
}

START_TEST(a_request_times_out_and_the_connection_stays_good)
{
	uint64_t begun;

	make_buffers(requests[_i]);
	stop();
	begun = clock_monotonic_ms();
	expect_timeout(requests[_i]());
	ck_assert_uint_ge(clock_monotonic_ms() - begun + 1, MS);
	/* What follows is not sent before the late reply has come. */
	expect_timeout(ask_stat());
	ck_assert_msg(strstr(gpushm_error(), "this one was not sent"), "%s", gpushm_error());
	go_on();
	expect_connection_is_good();
	drop_buffers();
}
END_TEST

START_TEST(a_connection_is_good_without_another_request_in_between)
{
	make_buffers(requests[_i]);
	stop();
	expect_timeout(requests[_i]());
	go_on();
	expect_connection_is_good();
	drop_buffers();
}
END_TEST

/* ---- what a late reply brings ---- */

START_TEST(a_lease_that_comes_late_is_given_back)
{
	make_buffers(NULL);
	for (unsigned i = 0; i < 3; i++) {
		uint32_t leases = client_status().leases;

		stop();
		expect_timeout(open_now());
		go_on();
		ck_assert_uint_eq(client_status().leases, leases);
	}
	drop_buffers();
}
END_TEST

START_TEST(a_buffer_that_comes_late_is_discarded_and_its_name_is_free)
{
	struct gpushm_buffer *b;

	stop();
	expect_timeout(create());
	go_on();
	b = client_create("new", 100, NULL);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

START_TEST(a_late_publish_can_be_repeated)
{
	make_buffers(NULL);
	stop();
	expect_timeout(publish());
	ck_assert_msg(strstr(gpushm_error(), "it may still do what was asked"), "%s",
		      gpushm_error());
	go_on();
	ck_assert_msg(publish() == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_buffer_state(fresh), GPUSHM_SEALED);
	ck_assert_int_eq(gpushm_wait(c, "fresh", 0), 0);
	ck_assert_int_eq(publish(), -EBUSY);
	drop_buffers();
}
END_TEST

START_TEST(a_late_publish_is_not_taken_for_one_under_another_name)
{
	make_buffers(NULL);
	stop();
	expect_timeout(publish());
	go_on();
	ck_assert_int_eq(gpushm_publish_as(fresh, GPUSHM_SEALED, "other", 0), -EBUSY);
	ck_assert_int_eq(gpushm_publish(fresh, GPUSHM_SHARED), -EBUSY);
	ck_assert_int_eq(publish(), 0);
	drop_buffers();
}
END_TEST

START_TEST(a_buffer_that_was_published_late_is_not_said_to_be_unpublished)
{
	make_buffers(NULL);
	stop();
	expect_timeout(publish());
	go_on();
	expect_connection_is_good();
	ck_assert_int_eq(gpushm_close(fresh), 0);
	ck_assert_int_eq(gpushm_unlink(c, "fresh"), 0);
	fresh = NULL;
	drop_buffers();
}
END_TEST

START_TEST(a_buffer_with_a_late_description_can_only_be_discarded)
{
	make_buffers(NULL);
	stop();
	expect_timeout(describe());
	go_on();
	ck_assert_int_eq(describe(), -ECONNRESET);
	ck_assert_msg(strstr(gpushm_error(), "create it again"), "%s", gpushm_error());
	ck_assert_int_eq(publish(), -ECONNRESET);
	expect_connection_is_good();
	ck_assert_int_eq(gpushm_discard(fresh), 0);
	fresh = NULL;
	drop_buffers();
}
END_TEST

/* ---- closing ---- */

START_TEST(closes_after_a_late_request_do_not_wait)
{
	struct gpushm_buffer *open[20];
	uint64_t begun;

	for (unsigned i = 0; i < 20; i++) {
		char name[8];

		snprintf(name, sizeof(name), "b%u", i);
		open[i] = shared(name, GPUSHM_SHARED);
	}
	stop();
	expect_timeout(ask_status());
	ck_assert_int_eq(gpushm_set_timeout(c, LONG_MS), 0);
	begun = clock_monotonic_ms();
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(gpushm_close(open[i]), 0);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, LONG_MS);
	go_on();
	ck_assert_uint_eq(client_status().leases, before.leases);
	for (unsigned i = 0; i < 20; i++) {
		char name[8];

		snprintf(name, sizeof(name), "b%u", i);
		ck_assert_int_eq(gpushm_unlink(c, name), 0);
	}
}
END_TEST

/* Enough of them fill the socket. */
#define CLOSES 2000u
START_TEST(closes_that_fill_the_socket_wait_once)
{
	static struct gpushm_buffer *open[CLOSES];
	uint64_t begun;

	make_buffers(NULL);
	for (unsigned i = 0; i < CLOSES; i++)
		ck_assert_int_eq(gpushm_open(c, "old", GPUSHM_READ, 0, NULL, &open[i]), 0);
	stop();
	ck_assert_int_eq(gpushm_set_timeout(c, 1000), 0);
	begun = clock_monotonic_ms();
	for (unsigned i = 0; i < CLOSES; i++)
		ck_assert_msg(gpushm_close(open[i]) == 0, "%s", gpushm_error());
	/* A second for each of those that did not fit would be half an hour. */
	ck_assert_uint_lt(clock_monotonic_ms() - begun, LONG_MS);
	expect_timeout(ask_status());
	go_on();
	ck_assert_uint_eq(client_status().leases, before.leases + 2);
	drop_buffers();
}
END_TEST

/* ---- time ---- */

static void on_tick(int signal)
{
}

START_TEST(signals_do_not_prolong_a_request)
{
	struct sigaction action = { .sa_handler = on_tick, .sa_flags = (int)SA_RESTART };
	struct itimerval every = { { 0, 5000 }, { 0, 5000 } }, off = { 0 };

	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
	stop();
	expect_timeout(ask_status());
	go_on();
	expect_connection_is_good();
	ck_assert_int_eq(setitimer(ITIMER_REAL, &off, NULL), 0);
}
END_TEST

START_TEST(the_time_of_the_caller_comes_on_top)
{
	struct gpushm_buffer *b = NULL;
	uint64_t begun = clock_monotonic_ms();

	ck_assert_int_eq(gpushm_set_timeout(c, 2000), 0);
	ck_assert_int_eq(gpushm_open(c, "none", GPUSHM_READ, 2500, NULL, &b), -ETIMEDOUT);
	ck_assert_str_eq(gpushm_error_code(), "TIMED_OUT");
	ck_assert_uint_ge(clock_monotonic_ms() - begun, 2500);
	ck_assert_int_eq(gpushm_set_timeout(c, LONG_MS), 0);
}
END_TEST

static void *ask(void *result)
{
	*(int *)result = ask_status();
	return NULL;
}

/* Each would otherwise wait in its turn. */
START_TEST(threads_that_wait_for_one_connection_wait_together)
{
	enum { N = 16, WAIT_MS = 400 };
	uint64_t begun;
	pthread_t threads[N];
	int results[N];

	stop();
	ck_assert_int_eq(gpushm_set_timeout(c, WAIT_MS), 0);
	begun = clock_monotonic_ms();
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &results[i]), 0);
	for (unsigned i = 0; i < N; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_int_eq(results[i], -ETIMEDOUT);
	}
	ck_assert_uint_lt(clock_monotonic_ms() - begun, N * WAIT_MS / 2);
	go_on();
	expect_connection_is_good();
}
END_TEST

START_TEST(the_environment_has_the_first_time)
{
	struct gpushm *other = NULL;

	setenv("GPUSHM_TIMEOUT_MS", "soon", 1);
	ck_assert_int_eq(gpushm_connect(d.socket, &other), -EINVAL);
	ck_assert_msg(strstr(gpushm_error(), "GPUSHM_TIMEOUT_MS=soon"), "%s", gpushm_error());
	setenv("GPUSHM_TIMEOUT_MS", "50", 1);
	ck_assert_int_eq(gpushm_connect(d.socket, &other), 0);
	unsetenv("GPUSHM_TIMEOUT_MS");
	stop();
	expect_timeout(gpushm_wait(other, "none", 0));
	ck_assert_msg(strstr(gpushm_error(), "within 50 ms"), "%s", gpushm_error());
	go_on();
	gpushm_disconnect(other);
}
END_TEST

START_TEST(a_connection_has_a_time_and_a_process)
{
	ck_assert_int_eq(gpushm_set_timeout(NULL, 1), -EINVAL);
	ck_assert_int_eq(gpushm_set_timeout(c, 0), 0);
	expect_connection_is_good();
	ck_assert_int_eq(gpushm_set_timeout(c, GPUSHM_WAIT_FOREVER), 0);
	expect_connection_is_good();
}
END_TEST

/* ---- a daemon that dies while its reply is due ---- */

START_TEST(a_daemon_that_dies_is_found_to_have_gone)
{
	struct gpushm_buffer *b = shared("old", GPUSHM_SHARED);

	stop();
	expect_timeout(open_now());
	daemon_kill(&d);
	ck_assert_int_eq(gpushm_set_timeout(c, LONG_MS), 0);
	ck_assert_int_eq(gpushm_wait(c, "old", 0), -ECONNRESET);
	ck_assert_int_eq(gpushm_close(b), 0);
	c = gpushm_disconnect(c);
	fds_check();
}
END_TEST

static void setup_mortal(void)
{
	client_setup_with("");
}

/* ---- streams ---- */

static struct gpushm_stream *producer(const char *name)
{
	const struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "a", .dtype = { 2, 32, 1, 0 }, .ndim = 0
	};
	const struct gpushm_stream_spec shape = { .struct_size = sizeof(shape),
						  .arrays = &spec,
						  .n_arrays = 1,
						  .slots = 4,
						  .readers = 4 };
	struct gpushm_stream *s = NULL;

	ck_assert_msg(gpushm_stream_create(c, name, &shape, NULL, &s) == 0, "%s", gpushm_error());
	return s;
}

START_TEST(a_reader_does_not_join_a_stopped_daemon)
{
	struct gpushm_stream *p = producer("s"), *reader = NULL;

	stop();
	expect_timeout(gpushm_stream_open(c, "s", GPUSHM_EVERY, 1, 0, NULL, &reader));
	go_on();
	ck_assert_int_eq(gpushm_stream_open(c, "s", GPUSHM_EVERY, 1, 0, NULL, &reader), 0);
	gpushm_stream_close(reader);
	gpushm_stream_close(p);
}
END_TEST

START_TEST(a_stream_ends_in_the_time_of_one_request)
{
	struct gpushm_stream *p = producer("s"), *reader = NULL;
	uint64_t begun;

	ck_assert_int_eq(gpushm_stream_open(c, "s", GPUSHM_EVERY, 1, 0, NULL, &reader), 0);
	stop();
	expect_timeout(ask_status());
	ck_assert_int_eq(gpushm_set_timeout(c, LONG_MS), 0);
	begun = clock_monotonic_ms();
	gpushm_stream_close(reader);
	gpushm_stream_close(p);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, LONG_MS);
	go_on();
	ck_assert_uint_eq(client_status().leases, before.leases);
	gpushm_unlink(c, "s");
}
END_TEST

/* The connection's time is much longer than that of the test. */
START_TEST(a_producer_waits_for_a_new_readers_page_in_its_own_time)
{
	struct gpushm_stream *p = producer("s"), *reader = NULL;
	struct gpushm_frame *f = NULL;

	ck_assert_int_eq(gpushm_stream_open(c, "s", GPUSHM_EVERY, 1, 0, NULL, &reader), 0);
	stop();
	ck_assert_int_eq(gpushm_set_timeout(c, 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(gpushm_frame_begin(p, NULL, 50, &f), -ETIMEDOUT);
		ck_assert_msg(strstr(gpushm_error(), "which has its page, does not answer"), "%s",
			      gpushm_error());
	}
	go_on();
	ck_assert_msg(gpushm_frame_begin(p, NULL, LONG_MS, &f) == 0, "%s", gpushm_error());
	gpushm_frame_cancel(f);
	gpushm_stream_close(reader);
	gpushm_stream_close(p);
}
END_TEST

/* ---- a mempool's descriptor, which comes once a connection ---- */

static void setup_fake(void)
{
	client_setup_with("");
}

START_TEST(a_pool_whose_descriptor_came_late_can_be_mapped)
{
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0-mempool" };
	struct gpushm_buffer *b = NULL;
	struct gpushm *other = NULL;

	ck_assert_int_eq(gpushm_connect(d.socket, &other), 0);
	ck_assert_msg(gpushm_create(other, "old", 1 << 20, &o, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	for (unsigned i = 0; i < 2; i++) {
		stop();
		expect_timeout(open_now());
		go_on();
		ck_assert_uint_eq(client_status().leases, 1);
	}
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_disconnect(other);
	ck_assert_msg(gpushm_open(c, "old", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	client_close_and_unlink(b, "old");
}
END_TEST

/* ---- namespaces ---- */

/* The pid that it says is another one than ours of it. */
START_TEST(a_daemon_of_another_pid_namespace_is_named_by_its_pid_here)
{
	const struct daemon_options o = { .isolated = true };

	if (!daemon_may_be_isolated())
		return;
	daemon_start_with(&d, "", &o);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	ck_assert_int_eq(kill(d.pid, SIGSTOP), 0);
	ck_assert_int_eq(gpushm_set_timeout(c, MS), 0);
	expect_timeout(gpushm_wait(c, "none", 0));
	go_on();
	expect_connection_is_good();
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("stopped"), *mortal = tcase_create("killed"),
	      *fake = tcase_create("fake"), *isolated = tcase_create("isolated");
	int n = sizeof(requests) / sizeof(requests[0]);

	tcase_add_checked_fixture(t, setup, counted_teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_request_times_out_and_the_connection_stays_good, 0, n);
	tcase_add_loop_test(t, a_connection_is_good_without_another_request_in_between, 0, n);
	tcase_add_test(t, a_lease_that_comes_late_is_given_back);
	tcase_add_test(t, a_buffer_that_comes_late_is_discarded_and_its_name_is_free);
	tcase_add_test(t, a_late_publish_can_be_repeated);
	tcase_add_test(t, a_late_publish_is_not_taken_for_one_under_another_name);
	tcase_add_test(t, a_buffer_that_was_published_late_is_not_said_to_be_unpublished);
	tcase_add_test(t, a_buffer_with_a_late_description_can_only_be_discarded);
	tcase_add_test(t, closes_after_a_late_request_do_not_wait);
	tcase_add_test(t, closes_that_fill_the_socket_wait_once);
	tcase_add_test(t, signals_do_not_prolong_a_request);
	tcase_add_test(t, the_time_of_the_caller_comes_on_top);
	tcase_add_test(t, threads_that_wait_for_one_connection_wait_together);
	tcase_add_test(t, the_environment_has_the_first_time);
	tcase_add_test(t, a_connection_has_a_time_and_a_process);
	tcase_add_test(t, a_reader_does_not_join_a_stopped_daemon);
	tcase_add_test(t, a_stream_ends_in_the_time_of_one_request);
	tcase_add_test(t, a_producer_waits_for_a_new_readers_page_in_its_own_time);
	tcase_add_checked_fixture(mortal, setup_mortal, NULL);
	tcase_add_test(mortal, a_daemon_that_dies_is_found_to_have_gone);
	tcase_add_checked_fixture(fake, setup_fake, client_teardown);
	if (fake_is_here())
		tcase_add_test(fake, a_pool_whose_descriptor_came_late_can_be_mapped);
	tcase_add_test(isolated, a_daemon_of_another_pid_namespace_is_named_by_its_pid_here);
	return suite_run("deadlines", t, mortal, fake, isolated, NULL);
}
