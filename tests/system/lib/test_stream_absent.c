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
	client_await(client_used_bytes() == 0);
	kept_teardown();
}

/* Calls give up when no daemon has answered for that long; NULL: for as long as in other tests. */
static void outage_begins(const char *reconnect_ms)
{
	supervisor_end(&k, SIGKILL);
	if (reconnect_ms)
		setenv("GPUSHM_RECONNECT_MS", reconnect_ms, 1);
}

static void outage_ends(void)
{
	unsetenv("GPUSHM_RECONNECT_MS");
	supervisor_start(&k);
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

static void create_and_follow(struct gpushm_stream_spec spec)
{
	create_with(spec);
	r = follow(GPUSHM_EVERY, 1);
}

START_TEST(a_producer_without_a_daemon_keeps_its_timeouts)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	outage_begins(NULL);
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
	outage_begins(NULL);
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
	outage_begins(NULL);
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
	outage_begins(NULL);
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
	struct gpushm_frame *held;

	create_and_follow((struct gpushm_stream_spec){ .slots = 2, .limit_ms = 50 });
	produce_many(2);
	held = next(r);
	outage_begins(NULL);
	fails_to_begin(0, -EAGAIN);
	poll(NULL, 0, 60);
	ck_assert_uint_lt(fails_to_begin(0, -EAGAIN), SOON_MS);
	says("has held frame 1");
	ck_assert_uint_lt(fails_to_begin(200, -ETIMEDOUT), 200 + SOON_MS);

	supervisor_start(&k);
	begins(10000);
	ck_assert_int_eq(gpushm_frame_release(held, NULL), -ESTALE);
	next_fails(r, 0, -ESTALE);
}
END_TEST

/* ---- calls that are shorter than $GPUSHM_RECONNECT_MS, as those of Python are ---- */

static const struct wait {
	const char *what;
	bool for_slot; /* else for a frame */
	bool by_fd;
	uint64_t timeout_ms;
} waits[] = {
	{ "short waits for a frame", false, false, 100 },
	{ "very short waits for a frame", false, false, 10 },
	{ "short waits for a slot", true, false, 100 },
	{ "very short waits for a slot", true, false, 1 },
	{ "an event loop that reads", false, true, 0 },
	{ "an event loop that produces", true, true, 0 },
};

/* Returns the first error that is not that there was none in time. */
static int wait_again_and_again(const struct wait *w)
{
	uint64_t end = clock_monotonic_ms() + 20000;
	int error, again = w->by_fd ? -EAGAIN : -ETIMEDOUT;
	int fd = w->by_fd ? gpushm_stream_fd(w->for_slot ? p : r) : -1;
	struct gpushm_frame *f = NULL;

	do {
		if (w->by_fd)
			ck_assert_msg(is_readable(fd, 20000), "%s", w->what);
		error = w->for_slot ? gpushm_frame_begin(p, NULL, w->timeout_ms, &f)
				    : gpushm_frame_next(r, NULL, w->timeout_ms, &f);
	} while (error == again && clock_monotonic_ms() < end);
	return error;
}

static void learns_of_the_outage(const struct wait *w)
{
	int error;

	outage_begins("1500");
	error = wait_again_and_again(w);
	ck_assert_msg(error == -ECONNRESET, "%s: %d: %s", w->what, error, gpushm_error());
	says("no daemon has answered within 1500 ms");
}

START_TEST(each_wait_learns_that_the_daemon_has_gone)
{
	const struct wait *w = &waits[_i];

	create_and_follow((struct gpushm_stream_spec){ .slots = 2 });
	produce();
	if (w->for_slot)
		produce();
	else
		expect_next(r, 1);
	learns_of_the_outage(w);
	outage_ends();
	if (w->for_slot) {
		expect_next(r, 1);
		begins(10000);
	} else {
		expect_next(r, produce());
	}
}
END_TEST

/* Here the producer needs the daemon, for the reader's page. */
START_TEST(short_calls_learn_that_the_daemon_has_gone)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	learns_of_the_outage(&(struct wait){ "short calls", .for_slot = true, .timeout_ms = 100 });
	fails_to_begin(100, -ETIMEDOUT);
	outage_ends();
	begins(10000);
}
END_TEST

/* No call for a frame has seen the daemon between the two. */
START_TEST(a_second_outage_has_a_time_limit_of_its_own)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	expect_next(r, produce());
	outage_begins(NULL);
	next_fails(r, 100, -ETIMEDOUT);
	supervisor_start(&k);
	client_status();
	poll(NULL, 0, 5200);
	outage_begins("5000");
	next_fails(r, 100, -ETIMEDOUT);
	outage_ends();
	expect_next(r, produce());
}
END_TEST

/* It looks for the daemon meanwhile. */
START_TEST(a_wait_that_misses_the_daemon_keeps_its_timeout)
{
	uint64_t begun;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	expect_next(r, produce());
	outage_begins("3000");
	begun = clock_monotonic_ms();
	next_fails(r, 5500, -ECONNRESET);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 6500);
	outage_ends();
}
END_TEST

/* ---- closes and leaves ---- */

static void create_more(struct gpushm_stream **more, size_t n)
{
	static const char *const names[] = { "a", "b", "c" };

	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(streamer_create(c, names[i], &(struct gpushm_stream_spec){ 0 },
						 &more[i]),
				 0);
}

/* As at the end of a process. The next daemon learns of the end all the same. */
START_TEST(closes_wait_once_for_the_daemon)
{
	struct gpushm_stream *more[2];
	uint64_t begun;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4, .flags = GPUSHM_KEEP_STREAM });
	create_more(more, 2);
	outage_begins("4000");
	begun = clock_monotonic_ms();
	gpushm_stream_close(more[0]);
	gpushm_stream_close(more[1]);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 7000);
	outage_ends();
	p = gpushm_stream_close(p);
	next_fails(r, 0, -EPIPE);
	ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
}
END_TEST

/* The last close comes when the first one's wait is over for long, and the outage is not. */
START_TEST(a_later_close_of_an_outage_does_not_wait_again)
{
	struct gpushm_stream *more[3];
	uint64_t begun = 0;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	create_more(more, array_size(more));
	outage_begins("4000");
	for (size_t i = 0; i < array_size(more); i++) {
		begun = clock_monotonic_ms();
		gpushm_stream_close(more[i]);
		if (i < array_size(more) - 1)
			poll(NULL, 0, 2500);
	}
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 3500);
	outage_ends();
	begins(10000);
}
END_TEST

/* As programs do that have arrays of frames. A producer has two things to say. */
START_TEST(leaves_wait_once_for_the_daemon)
{
	struct gpushm_stream *more[2];
	uint64_t begun;

	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	create_more(more, 2);
	outage_begins("5000");
	begun = clock_monotonic_ms();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gpushm_stream_leave(more[i]), -ECONNRESET);
		says("no daemon has answered within 5000 ms");
	}
	ck_assert_int_eq(gpushm_stream_leave(r), -ECONNRESET);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, 9500);
	outage_ends();
	for (int i = 0; i < 2; i++)
		gpushm_stream_close(more[i]);
	begins(10000);
}
END_TEST

static void leave_without_daemon(struct gpushm_stream *s)
{
	outage_begins("100");
	ck_assert_int_eq(gpushm_stream_leave(s), -ECONNRESET);
	outage_ends();
}

/* It would hold up the producer for as long as arrays of its frames exist. */
START_TEST(a_leave_that_failed_can_be_repeated)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4, .limit_ms = 600000 });
	leave_without_daemon(r);
	client_await(gpushm_stream_leave(r) != -ECONNRESET);
	ck_assert_int_eq(gpushm_stream_leave(r), 0);
	begins(10000);
	produce_many(10);
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
	next_fails(r, 10000, -EPIPE);
}
END_TEST

START_TEST(a_close_without_a_daemon_ends_the_stream)
{
	create_and_follow((struct gpushm_stream_spec){ .slots = 4, .flags = GPUSHM_KEEP_STREAM });
	expect_next(r, produce());
	outage_begins("100");
	p = gpushm_stream_close(p);
	outage_ends();
	next_fails(r, 10000, -EPIPE);
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
	outage_begins(NULL);
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

/* "0": the thread waits for longer than the library waits for a daemon. */
static const struct {
	const char *reconnect_ms;
	bool by_fd;
} begins_beside_a_thread[] = { { NULL, true }, { "0", false } };

START_TEST(a_thread_that_waits_for_a_name_holds_up_no_producer)
{
	bool by_fd = begins_beside_a_thread[_i].by_fd;
	struct gpushm_buffer *b;
	struct gpushm *other;
	pthread_t thread;
	int fd = -1;

	if (begins_beside_a_thread[_i].reconnect_ms)
		setenv("GPUSHM_RECONNECT_MS", begins_beside_a_thread[_i].reconnect_ms, 1);
	create_and_follow((struct gpushm_stream_spec){ .slots = 4 });
	if (by_fd)
		fd = gpushm_stream_fd(p);
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
	if (by_fd)
		ck_assert_int_eq(begin_by_fd(fd, 10000), 0);
	else
		begins(10000);
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
		st = gpushm_free(st);
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
	tcase_add_loop_test(t, each_wait_learns_that_the_daemon_has_gone, 0, array_size(waits));
	tcase_add_test(t, short_calls_learn_that_the_daemon_has_gone);
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
	tcase_add_loop_test(t, a_thread_that_waits_for_a_name_holds_up_no_producer, 0,
			    array_size(begins_beside_a_thread));
	tcase_add_test(t, a_producer_gets_the_lock_among_many_requests);
	tcase_set_timeout(t, 60);
	return suite_run("stream_absent", t, NULL);
}
