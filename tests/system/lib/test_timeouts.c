/* SPDX-License-Identifier: MIT
 *
 * No wait ends before its time, to the nanosecond. Each call that takes a timeout is made many
 * times, so that it begins anywhere between two ticks of clocks that count in milliseconds.
 */
#include "client/gpushm_events.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/model_files.h"
#include "tests/lib/streamer.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#define MIB (1ull << 20)
#define CALLS 50
#define MS 3u

/* ---- somebody else ---- */

static pthread_t other;
static _Atomic bool stops;

/* Wakes the daemon again and again, so that it looks at its clock in the middle of a wait. */
static void *ask_again_and_again(void *arg)
{
	struct gpushm *mine = NULL;

	ck_assert_int_eq(gpushm_connect(d.socket, &mine), 0);
	while (!stops) {
		struct gpushm_status *status = NULL;

		ck_assert_int_eq(gpushm_status(mine, &status), 0);
		gpushm_free(status);
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	return gpushm_disconnect(mine);
}

static void setup(void)
{
	model_files_open();
	client_setup_with("[pool host]\nkind = host\nsize = 16M\n");
	stops = false;
	ck_assert_int_eq(pthread_create(&other, NULL, ask_again_and_again, NULL), 0);
}

static void teardown(void)
{
	stops = true;
	pthread_join(other, NULL);
	model_files_close();
	client_teardown();
}

/* What a call waits for, and gets never. */
struct awaited {
	struct gpushm_buffer *buffer;
	struct gpushm_watch *watch;
	struct gpushm_stream *stream;
	const char *file;
};

/* A wait that ended with a tick would be followed by one that begins with it. */
static void go_between_ticks(unsigned i)
{
	while (clock_monotonic_ns() % 1000000u * CALLS / 1000000u != i)
		;
}

static void expect_in_time(int (*call)(const struct awaited *a), const struct awaited *a,
			   int wanted)
{
	for (unsigned i = 0; i < CALLS; i++) {
		uint64_t begun, took;
		int r;

		go_between_ticks(i);
		begun = clock_monotonic_ns();
		r = call(a);
		took = clock_monotonic_ns() - begun;
		ck_assert_msg(r == wanted, "%d: %s", r, gpushm_error());
		ck_assert_msg(took >= MS * 1000000u, "%u ms ended after %lu ns", MS,
			      (unsigned long)took);
	}
}

/* ---- a name ---- */

static int open_name(const struct awaited *a)
{
	struct gpushm_buffer *b = NULL;

	return gpushm_open(c, "b", GPUSHM_READ, MS, NULL, &b);
}

static int wait_for_name(const struct awaited *a)
{
	return gpushm_wait(c, "b", MS);
}

static int stat_name(const struct awaited *a)
{
	struct gpushm_stat *s = NULL;

	return gpushm_stat(c, "none", MS, 0, &s);
}

static int open_or_create(const struct awaited *a)
{
	struct gpushm_buffer *b = NULL;

	return gpushm_open_or_create(c, "b", GPUSHM_READ, MS, NULL, 1, NULL, &b);
}

static int open_stream(const struct awaited *a)
{
	struct gpushm_stream *s = NULL;

	return gpushm_stream_open(c, "none", GPUSHM_EVERY, 1, MS, NULL, &s);
}

static int (*const for_a_name[])(const struct awaited *a) = {
	open_name, wait_for_name, stat_name, open_or_create, open_stream,
};

START_TEST(a_wait_for_a_name_lasts_its_full_time)
{
	struct gpushm_buffer *b = client_create("b", 1, NULL);

	expect_in_time(for_a_name[_i], NULL, -ETIMEDOUT);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

/* ---- another process that loads ---- */

static int load(const struct awaited *a)
{
	const struct gpushm_load_options o = { .struct_size = sizeof(o),
					       .flags = GPUSHM_LOAD_IF_MISSING,
					       .wait_ms = MS };
	struct gpushm_buffer *b = NULL;

	return gpushm_load(c, &a->file, 1, "b", NULL, &o, &b);
}

START_TEST(a_waiting_load_lasts_its_full_time)
{
	const struct awaited a = { .file = model_write("m.safetensors", "w", "4") };
	struct gpushm_buffer *b = client_create("b", 1, NULL);

	expect_in_time(load, &a, -ETIMEDOUT);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

/* ---- space ---- */

static int create(const struct awaited *a)
{
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .wait_ms = MS };
	struct gpushm_buffer *b = NULL;

	return gpushm_create(c, "late", 8 * MIB, &o, &b);
}

START_TEST(a_waiting_create_lasts_its_full_time)
{
	struct gpushm_buffer *b = client_create("b", 12 * MIB, NULL);

	expect_in_time(create, NULL, -ENOSPC);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

/* ---- changes and events ---- */

static int wait_for_change(const struct awaited *a)
{
	uint32_t word;

	return gpushm_buffer_wait(a->buffer, gpushm_buffer_notice(a->buffer), MS, &word);
}

static int watch(const struct awaited *a)
{
	struct gpushm_event event = { .struct_size = sizeof(event) };

	return gpushm_watch_next(a->watch, MS, &event);
}

static int wait_for_event(const struct awaited *a)
{
	const struct gpushm_events_options o = { .struct_size = sizeof(o),
						 .after = GPUSHM_EVENTS_NEW,
						 .timeout_ms = MS };
	struct gpushm_events *e = NULL;
	int r = gpushm_events(c, &o, &e);

	gpushm_free(e);
	return r;
}

START_TEST(a_wait_for_a_change_lasts_its_full_time)
{
	struct awaited a = { .buffer = client_create("b", 1, NULL) };
	struct gpushm_event event = { .struct_size = sizeof(event) };

	ck_assert_int_eq(gpushm_publish(a.buffer, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_watch_new(c, &a.watch), 0);
	ck_assert_int_eq(gpushm_watch_name(a.watch, "b"), 0);
	ck_assert_int_eq(gpushm_watch_next(a.watch, 1000, &event), 0);
	expect_in_time(wait_for_change, &a, -ETIMEDOUT);
	expect_in_time(watch, &a, -ETIMEDOUT);
	expect_in_time(wait_for_event, &a, 0);
	gpushm_watch_free(a.watch);
	client_close_and_unlink(a.buffer, "b");
}
END_TEST

/* ---- frames ---- */

static int next_frame(const struct awaited *a)
{
	struct gpushm_frame *f = NULL;

	return gpushm_frame_next(a->stream, GPUSHM_ON_HOST, MS, &f);
}

START_TEST(a_wait_for_a_frame_lasts_its_full_time)
{
	struct gpushm_stream_spec spec = { .slots = 2 };
	struct gpushm_stream *s = NULL;
	struct awaited a = { 0 };

	ck_assert_msg(streamer_create(c, "s", &spec, &s) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_stream_open(c, "s", GPUSHM_EVERY, 1, 0, NULL, &a.stream), 0);
	expect_in_time(next_frame, &a, -ETIMEDOUT);
	ck_assert_ptr_null(gpushm_stream_close(a.stream));
	ck_assert_ptr_null(gpushm_stream_close(s));
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("timeouts");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_wait_for_a_name_lasts_its_full_time, 0, array_size(for_a_name));
	tcase_add_test(t, a_waiting_load_lasts_its_full_time);
	tcase_add_test(t, a_waiting_create_lasts_its_full_time);
	tcase_add_test(t, a_wait_for_a_change_lasts_its_full_time);
	tcase_add_test(t, a_wait_for_a_frame_lasts_its_full_time);
	return suite_run("timeouts", t, NULL);
}
