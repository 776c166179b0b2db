/* SPDX-License-Identifier: MIT
 *
 * A producer that needs the daemon while there is none: its timeouts count all the same.
 */
#include "proto/base/clock.h"
#include "tests/lib/kept.h"
#include "tests/system/lib/stream_fixture.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SOON_MS 3000 /* a call with a timeout of 0; far less than $GPUSHM_RECONNECT_MS */

static void leave(void)
{
	r = gpushm_stream_close(r);
	p = gpushm_stream_close(p);
	client_await(gpushm_unlink(c, "s") == -ENOENT);
	kept_teardown();
}

static void go_away(void)
{
	supervisor_end(&k, SIGKILL);
}

static uint64_t fails_to_begin(uint64_t timeout_ms, int error)
{
	uint64_t begun = clock_monotonic_ms();
	struct gpushm_frame *f = NULL;

	ck_assert_int_eq(gpushm_frame_begin(p, NULL, timeout_ms, &f), error);
	return clock_monotonic_ms() - begun;
}

static bool is_readable(int fd, int ms)
{
	struct pollfd w = { .fd = fd, .events = POLLIN };

	return poll(&w, 1, ms) > 0;
}

static void begins(uint64_t timeout_ms)
{
	struct gpushm_frame *f = NULL;

	ck_assert_msg(gpushm_frame_begin(p, NULL, timeout_ms, &f) == 0, "%s", gpushm_error());
	gpushm_frame_cancel(f);
}

static void create_and_follow(struct gpushm_stream_spec spec)
{
	create_with(spec);
	r = follow(GPUSHM_EVERY, 1);
}

START_TEST(a_producer_without_a_daemon_keeps_its_timeouts)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	go_away();
	for (int i = 0; i < 20; i++)
		ck_assert_uint_lt(fails_to_begin(0, -EAGAIN), SOON_MS);
	says("a reader has joined");
	ck_assert_uint_ge(fails_to_begin(300, -ETIMEDOUT), 300);
	says("the daemon");

	supervisor_start(&k);
	begins(10000);
	expect_next(r, produce());
}
END_TEST

/* As a loop over a camera's frames does. */
START_TEST(a_loop_without_timeouts_finds_the_daemon)
{
	uint64_t end;
	struct gpushm_frame *f = NULL;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	go_away();
	fails_to_begin(0, -EAGAIN);
	supervisor_start(&k);
	end = clock_monotonic_ms() + 10000;
	while (gpushm_frame_begin(p, NULL, 0, &f) == -EAGAIN && clock_monotonic_ms() < end)
		poll(NULL, 0, 4);
	ck_assert_ptr_nonnull(f);
	gpushm_frame_cancel(f);
	expect_next(r, produce());
}
END_TEST

/* As an event loop does, whose only call is for the fd. */
static int begin_by_fd(int fd, uint64_t ms)
{
	uint64_t end = clock_monotonic_ms() + ms;
	struct gpushm_frame *f = NULL;
	int error = -EAGAIN;

	while (error == -EAGAIN && clock_monotonic_ms() < end && is_readable(fd, (int)ms))
		error = gpushm_frame_begin(p, NULL, 0, &f);
	if (error == 0)
		gpushm_frame_cancel(f);
	return error;
}

START_TEST(an_fd_wakes_when_the_daemon_is_back)
{
	int fd;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	fd = gpushm_stream_fd(p);
	go_away();
	ck_assert_int_eq(begin_by_fd(fd, 500), -EAGAIN);
	supervisor_start(&k);
	ck_assert_int_eq(begin_by_fd(fd, 10000), 0);
	expect_next(r, produce());
}
END_TEST

/* What waits in the listener's queue holds up others. */
START_TEST(failed_calls_leave_one_connection)
{
	int fd, n = 0;

	if (supervisor_skips("failed_calls_leave_one_connection"))
		return;
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	go_away();
	for (int i = 0; i < 50; i++)
		fails_to_begin(0, -EAGAIN);
	for (struct pollfd waiting = { .fd = k.listening, .events = POLLIN };
	     poll(&waiting, 1, 0) > 0; n++) {
		fd = accept4(k.listening, NULL, NULL, SOCK_CLOEXEC);
		ck_assert_int_ge(fd, 0);
		close(fd);
	}
	ck_assert_int_eq(n, 1);

	/* That daemon died before it replied; the next one is found. */
	fails_to_begin(0, -EAGAIN);
	supervisor_start(&k);
	begins(10000);
}
END_TEST

START_TEST(a_slow_reader_is_dropped_when_the_daemon_is_back)
{
	struct gpushm_frame *held, *f = NULL;

	create_and_follow((struct gpushm_stream_spec){ .slots = 2, .limit_ms = 50 });
	produce();
	produce();
	held = next(r);
	go_away();
	fails_to_begin(0, -EAGAIN);
	poll(NULL, 0, 60);
	ck_assert_uint_lt(fails_to_begin(0, -EAGAIN), SOON_MS);
	says("has held frame 1");
	ck_assert_uint_lt(fails_to_begin(200, -ETIMEDOUT), 200 + SOON_MS);

	supervisor_start(&k);
	begins(10000);
	ck_assert_int_eq(gpushm_frame_release(held, NULL), -ESTALE);
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 0, &f), -ESTALE);
}
END_TEST

/* Each call is shorter than $GPUSHM_RECONNECT_MS, as those of Python are. */
START_TEST(short_calls_learn_that_the_daemon_has_gone)
{
	uint64_t end = clock_monotonic_ms() + 10000;
	struct gpushm_frame *f = NULL;
	int error;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "1500", 1);
	do
		error = gpushm_frame_begin(p, NULL, 100, &f);
	while (error == -ETIMEDOUT && clock_monotonic_ms() < end);
	ck_assert_int_eq(error, -ECONNRESET);
	says("no daemon has answered within 1500 ms");
	fails_to_begin(100, -ETIMEDOUT);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
	begins(10000);
}
END_TEST

/* The same of waits that do not need the daemon, but for what it would wake them. */
static void learns(bool producer, uint64_t timeout_ms)
{
	uint64_t end = clock_monotonic_ms() + 10000;
	struct gpushm_frame *f = NULL;
	int error;

	go_away();
	setenv("GPUSHM_RECONNECT_MS", "1500", 1);
	do
		error = producer ? gpushm_frame_begin(p, NULL, timeout_ms, &f)
				 : gpushm_frame_next(r, NULL, timeout_ms, &f);
	while (error == -ETIMEDOUT && clock_monotonic_ms() < end);
	ck_assert_int_eq(error, -ECONNRESET);
	says("no daemon has answered within 1500 ms");
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
}

static void reader_learns(uint64_t timeout_ms)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	expect_next(r, produce());
	learns(false, timeout_ms);
	expect_next(r, produce());
}

static void producer_learns(uint64_t timeout_ms)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 2 });
	produce();
	produce();
	learns(true, timeout_ms);
	expect_next(r, 1);
	begins(10000);
}

START_TEST(short_waits_for_a_frame_never_learn_that_the_daemon_has_gone)
{
	reader_learns(100);
}
END_TEST

START_TEST(very_short_waits_for_a_frame_never_learn_that_the_daemon_has_gone)
{
	reader_learns(10);
}
END_TEST

START_TEST(short_waits_for_a_slot_never_learn_that_the_daemon_has_gone)
{
	producer_learns(100);
}
END_TEST

START_TEST(very_short_waits_for_a_slot_never_learn_that_the_daemon_has_gone)
{
	producer_learns(1);
}
END_TEST

/* The same of an event loop, whose calls do not wait at all. */
static void learns_by_fd(bool producer)
{
	int error = -EAGAIN, fd = gpushm_stream_fd(producer ? p : r);
	struct gpushm_frame *f = NULL;

	ck_assert_int_ge(fd, 0);
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "1000", 1);
	while (error == -EAGAIN) {
		ck_assert(is_readable(fd, 20000));
		error = producer ? gpushm_frame_begin(p, NULL, 0, &f)
				 : gpushm_frame_next(r, NULL, 0, &f);
	}
	ck_assert_int_eq(error, -ECONNRESET);
	says("no daemon has answered within 1000 ms");
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
}

START_TEST(an_event_loop_that_reads_never_learns_that_the_daemon_has_gone)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	expect_next(r, produce());
	learns_by_fd(false);
	expect_next(r, produce());
}
END_TEST

START_TEST(an_event_loop_that_produces_never_learns_that_the_daemon_has_gone)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 2 });
	produce();
	produce();
	learns_by_fd(true);
	expect_next(r, 1);
	begins(10000);
}
END_TEST

/* No call for a frame has seen the daemon between the two. */
START_TEST(a_second_outage_has_a_time_limit_of_its_own)
{
	struct gpushm_frame *f = NULL;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	expect_next(r, produce());
	go_away();
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 100, &f), -ETIMEDOUT);
	supervisor_start(&k);
	client_status();
	poll(NULL, 0, 5200);
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "5000", 1);
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 100, &f), -ETIMEDOUT);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
	expect_next(r, produce());
}
END_TEST

/* It looks for the daemon meanwhile. */
START_TEST(a_wait_that_misses_the_daemon_keeps_its_timeout)
{
	struct gpushm_frame *f = NULL;
	uint64_t begun;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	expect_next(r, produce());
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "3000", 1);
	begun = clock_monotonic_ms();
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 5500, &f), -ECONNRESET);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 6500);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
}
END_TEST

/* As at the end of a process. The next daemon learns of the end all the same. */
START_TEST(closes_wait_once_for_the_daemon)
{
	struct gpushm_stream *more[2];
	uint64_t begun;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4, .flags = GPUSHM_KEEP_STREAM });
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(streamer_create(c, i ? "b" : "a",
						 &(struct gpushm_stream_spec){ 0 }, &more[i]),
				 0);
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "4000", 1);
	begun = clock_monotonic_ms();
	gpushm_stream_close(more[0]);
	gpushm_stream_close(more[1]);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 7000);
	supervisor_start(&k);
	p = gpushm_stream_close(p);
	unsetenv("GPUSHM_RECONNECT_MS");
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 0, &(struct gpushm_frame *){ NULL }), -EPIPE);
	ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
}
END_TEST

/* The last close comes when the first one's wait is over for long, and the outage is not. */
START_TEST(a_later_close_of_an_outage_does_not_wait_again)
{
	struct gpushm_stream *more[3];
	const char *const names[] = { "a", "b", "c" };
	uint64_t begun = 0;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	for (size_t i = 0; i < array_size(more); i++)
		ck_assert_int_eq(streamer_create(c, names[i], &(struct gpushm_stream_spec){ 0 },
						 &more[i]),
				 0);
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "4000", 1);
	for (size_t i = 0; i < array_size(more); i++) {
		begun = clock_monotonic_ms();
		gpushm_stream_close(more[i]);
		if (i < array_size(more) - 1)
			poll(NULL, 0, 2500);
	}
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 3500);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
	begins(10000);
}
END_TEST

/* As programs do that have arrays of frames. A producer has two things to say. */
START_TEST(leaves_wait_once_for_the_daemon)
{
	struct gpushm_stream *more[2];
	uint64_t begun;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(streamer_create(c, i ? "b" : "a",
						 &(struct gpushm_stream_spec){ 0 }, &more[i]),
				 0);
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "5000", 1);
	begun = clock_monotonic_ms();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gpushm_stream_leave(more[i]), -ECONNRESET);
		says("no daemon has answered within 5000 ms");
	}
	ck_assert_int_eq(gpushm_stream_leave(r), -ECONNRESET);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 9500);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
	for (int i = 0; i < 2; i++)
		gpushm_stream_close(more[i]);
	begins(10000);
}
END_TEST

static void leave_without_daemon(struct gpushm_stream *s)
{
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "100", 1);
	ck_assert_int_eq(gpushm_stream_leave(s), -ECONNRESET);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
}

/* It would hold up the producer for as long as arrays of its frames exist. */
START_TEST(a_leave_that_failed_can_be_repeated)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4, .limit_ms = 600000 });
	leave_without_daemon(r);
	client_await(gpushm_stream_leave(r) != -ECONNRESET);
	ck_assert_int_eq(gpushm_stream_leave(r), 0);
	begins(10000);
	for (int i = 0; i < 10; i++)
		produce();
}
END_TEST

START_TEST(a_close_after_a_failed_leave_frees_the_name)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	expect_next(r, produce());
	leave_without_daemon(p);
	client_status();
	p = gpushm_stream_close(p);
	ck_assert_int_eq(gpushm_unlink(c, "s"), -ENOENT);
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 10000, &(struct gpushm_frame *){ NULL }),
			 -EPIPE);
}
END_TEST

START_TEST(a_close_without_a_daemon_ends_the_stream)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4, .flags = GPUSHM_KEEP_STREAM });
	expect_next(r, produce());
	go_away();
	setenv("GPUSHM_RECONNECT_MS", "100", 1);
	p = gpushm_stream_close(p);
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 10000, &(struct gpushm_frame *){ NULL }),
			 -EPIPE);
	ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
}
END_TEST

/* This process can't make a socket: that is no matter of the daemon's. */
START_TEST(a_process_without_descriptors_says_so)
{
	struct rlimit before, full;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	kept_crash();
	getrlimit(RLIMIT_NOFILE, &before);
	full = (struct rlimit){ 3, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &full);
	fails_to_begin(1000, -ECONNRESET);
	setrlimit(RLIMIT_NOFILE, &before);
	says("Too many open files");
	begins(10000);
}
END_TEST

/* ---- a socket on which nobody listens for some time, and nobody accepts then ---- */

#define LATE_MS 2000

static void *listen_late(void *arg)
{
	poll(NULL, 0, LATE_MS);
	ck_assert_int_eq(listen(k.listening, 128), 0);
	return arg;
}

START_TEST(a_late_listener_leaves_the_timeout_as_it_is)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	pthread_t thread;

	if (supervisor_skips("a_late_listener_leaves_the_timeout_as_it_is"))
		return;
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	go_away();
	close(k.listening);
	unlink(k.socket);
	k.listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", k.socket);
	ck_assert_int_eq(bind(k.listening, (struct sockaddr *)&at, sizeof(at)), 0);
	pthread_create(&thread, NULL, listen_late, NULL);
	ck_assert_uint_lt(fails_to_begin(LATE_MS + 500, -ETIMEDOUT), 2 * LATE_MS);
	pthread_join(thread, NULL);
	supervisor_start(&k);
	begins(10000);
}
END_TEST

/* ---- another thread's request ---- */

static void *wait_for_name(void *arg)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_open(c, "late", GPUSHM_READ, 10000, NULL, &b), 0);
	gpushm_close(b);
	return arg;
}

/* For as long as the library waits for a daemon, and longer. */
START_TEST(a_call_without_a_limit_does_not_wait_for_another_thread)
{
	struct gpushm_buffer *b;
	struct gpushm *other;
	pthread_t thread;

	setenv("GPUSHM_RECONNECT_MS", "0", 1);
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	ck_assert_int_eq(gpushm_connect(k.socket, &other), 0);
	pthread_create(&thread, NULL, wait_for_name, NULL);
	poll(NULL, 0, 100);
	ck_assert_uint_lt(fails_to_begin(0, -EAGAIN), SOON_MS);
	says("another thread");
	ck_assert_uint_lt(fails_to_begin(100, -ETIMEDOUT), 100 + SOON_MS);
	unsetenv("GPUSHM_RECONNECT_MS");

	ck_assert_int_eq(gpushm_create(other, "late", 1, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	gpushm_close(b);
	pthread_join(thread, NULL);
	begins(10000);
	ck_assert_int_eq(gpushm_unlink(other, "late"), 0);
	gpushm_disconnect(other);
}
END_TEST

START_TEST(a_thread_that_waits_for_a_name_holds_up_no_producer)
{
	struct gpushm_buffer *b;
	struct gpushm *other;
	pthread_t thread;
	int fd;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	fd = gpushm_stream_fd(p);
	pthread_create(&thread, NULL, wait_for_name, NULL);
	poll(NULL, 0, 100);
	ck_assert_uint_lt(fails_to_begin(0, -EAGAIN), SOON_MS);
	says("another thread");
	ck_assert_uint_lt(fails_to_begin(100, -ETIMEDOUT), 100 + SOON_MS);

	ck_assert_int_eq(gpushm_connect(k.socket, &other), 0);
	ck_assert_int_eq(gpushm_create(other, "late", 1, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	gpushm_close(b);
	pthread_join(thread, NULL);
	ck_assert_int_eq(begin_by_fd(fd, 10000), 0);
	expect_next(r, produce());
	ck_assert_int_eq(gpushm_unlink(other, "late"), 0);
	gpushm_disconnect(other);
}
END_TEST

static _Atomic bool asking;

static void *ask(void *arg)
{
	struct gpushm_stat *st = NULL;

	while (asking) {
		ck_assert_int_eq(gpushm_stat(c, "s", 0, 0, &st), 0);
		st = gpushm_stat_free(st, 1);
	}
	return arg;
}

#define JOINS 200
#define ROUNDS 3 /* a busy machine may be slow in one of them */

static int count_failures(void)
{
	struct gpushm_frame *f = NULL;
	int failed = 0;

	for (int i = 0; i < JOINS; i++) {
		r = follow(GPUSHM_LATEST, 1);
		if (gpushm_frame_begin(p, NULL, 20, &f) == 0)
			gpushm_frame_cancel(f);
		else
			failed++;
		r = gpushm_stream_close(r);
	}
	return failed;
}

/* None of their requests takes long. */
START_TEST(a_producer_gets_the_lock_among_many_requests)
{
	pthread_t threads[2];
	int failed = JOINS;

	create(4);
	asking = true;
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, ask, NULL);
	for (int i = 0; i < ROUNDS && failed >= JOINS / 20; i++)
		failed = count_failures();
	asking = false;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_lt(failed, JOINS / 20);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("stream_absent");

	tcase_add_checked_fixture(t, kept_setup, leave);
	tcase_add_test(t, a_producer_without_a_daemon_keeps_its_timeouts);
	tcase_add_test(t, a_loop_without_timeouts_finds_the_daemon);
	tcase_add_test(t, an_fd_wakes_when_the_daemon_is_back);
	tcase_add_test(t, failed_calls_leave_one_connection);
	tcase_add_test(t, a_slow_reader_is_dropped_when_the_daemon_is_back);
	tcase_add_test(t, short_calls_learn_that_the_daemon_has_gone);
	tcase_add_test(t, short_waits_for_a_frame_never_learn_that_the_daemon_has_gone);
	tcase_add_test(t, very_short_waits_for_a_frame_never_learn_that_the_daemon_has_gone);
	tcase_add_test(t, very_short_waits_for_a_slot_never_learn_that_the_daemon_has_gone);
	tcase_add_test(t, an_event_loop_that_reads_never_learns_that_the_daemon_has_gone);
	tcase_add_test(t, an_event_loop_that_produces_never_learns_that_the_daemon_has_gone);
	tcase_add_test(t, short_waits_for_a_slot_never_learn_that_the_daemon_has_gone);
	tcase_add_test(t, a_second_outage_has_a_time_limit_of_its_own);
	tcase_add_test(t, a_wait_that_misses_the_daemon_keeps_its_timeout);
	tcase_add_test(t, closes_wait_once_for_the_daemon);
	tcase_add_test(t, a_later_close_of_an_outage_does_not_wait_again);
	tcase_add_test(t, leaves_wait_once_for_the_daemon);
	tcase_add_test(t, a_leave_that_failed_can_be_repeated);
	tcase_add_test(t, a_close_after_a_failed_leave_frees_the_name);
	tcase_add_test(t, a_close_without_a_daemon_ends_the_stream);
	tcase_add_test(t, a_process_without_descriptors_says_so);
	tcase_add_test(t, a_late_listener_leaves_the_timeout_as_it_is);
	tcase_add_test(t, a_thread_that_waits_for_a_name_holds_up_no_producer);
	tcase_add_test(t, a_call_without_a_limit_does_not_wait_for_another_thread);
	tcase_add_test(t, a_producer_gets_the_lock_among_many_requests);
	tcase_set_timeout(t, 60);
	return suite_run("stream_absent", t, NULL);
}
