/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl streams` without a daemon: two looks at streams that are made up here, the rates
 * between them, who is named as being in the way, and JSON.
 */
#include "client/ctl/stream/stream_view.h"
#include "client/lib/base/result.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"
#include "tests/unit/ctl/no_names.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define READERS 4

/* What the next look returns, and the one after it. */
static struct gpushm_stream_info looks[2];
static struct gpushm_stream_reader readers[2][READERS], *reader_list[2][READERS];
static int next_look, failure;
static struct ctl ctl;
static char *text;

static void point(void)
{
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < READERS; k++)
			reader_list[i][k] = &readers[i][k];
		looks[i].readers = reader_list[i];
	}
}

int gpushm_streams(struct gpushm *c, const char *prefix, struct gpushm_stream_info ***ret,
		   size_t *ret_n)
{
	const struct gpushm_stream_info *s = &looks[next_look];
	struct result result = { 0 };

	if (failure)
		return failure;
	point();
	if (!prefix || strncmp(s->name, prefix, strlen(prefix)) == 0)
		memcpy(result_add(&result, sizeof(*s)), s, sizeof(*s));
	next_look = 1;
	return result_list(&result, ret_n, ret);
}

/* A producer of 100 frames/s with 8 slots: an `every` reader that is at the newest frame, and a
 * `latest` reader that took 10 frames in the second between the looks. */
static void setup(void)
{
	struct gpushm_stream_info s = { .buffer = 7,
					.name = "cam/0",
					.pool = "gpu0",
					.uid = 1001,
					.slots = 8,
					.readers_max = 8,
					.producers = 1,
					.slot_bytes = 4096,
					.state = GPUSHM_STREAM_RUNNING,
					.delivery = GPUSHM_AT_LEAST_ONCE,
					.limit_ms = 10000,
					.pid = 4711,
					.command = "decode",
					.newest = 1000,
					.newest_ns = 10 * SECOND,
					.now_ns = 10 * SECOND + 3 * MS,
					.n_readers = 2 };
	struct gpushm_stream_reader every = { .follow = GPUSHM_EVERY,
					      .max_held = 2,
					      .pid = 4712,
					      .uid = 1001,
					      .command = "infer",
					      .joined_ns = 5 * SECOND,
					      .taken = 900,
					      .held = 1,
					      .oldest = 1000,
					      .oldest_ms = 3 };
	struct gpushm_stream_reader latest = { .index = 3,
					       .follow = GPUSHM_LATEST,
					       .max_held = 1,
					       .pid = 4713,
					       .uid = 1002,
					       .command = "draw",
					       .joined_ns = 6 * SECOND,
					       .lag = 4,
					       .taken = 90,
					       .skipped = 800 };

	memset(readers, 0, sizeof(readers));
	readers[0][0] = readers[1][0] = every;
	readers[0][1] = readers[1][1] = latest;
	looks[0] = looks[1] = s;
	looks[1].newest = 1100;
	looks[1].newest_ns = 11 * SECOND;
	looks[1].now_ns = 11 * SECOND + 3 * MS;
	readers[1][0].taken = readers[1][0].oldest = 1000;
	readers[1][0].oldest = 1100;
	readers[1][1].taken = 100;
	readers[1][1].skipped = 890;
	next_look = failure = 0;
	ctl = (struct ctl){ 0 };
}

static void teardown(void)
{
	free_ptr(&text);
}

static int print(uint64_t delay, char *word)
{
	const struct {
		uint64_t delay;
		bool wide, names;
	} options = { .delay = delay };
	FILE *screen = stdout;
	size_t len;
	int r;

	free_ptr(&text);
	next_look = 0;
	stdout = open_memstream(&text, &len);
	r = command_streams.run(&ctl, &options, word ? 1 : 0, &word);
	fclose(stdout);
	stdout = screen;
	return r;
}

#define prints(part) ck_assert_msg(strstr(text, part), "no \"%s\" in:\n%s", part, text)
#define prints_no(part) ck_assert_msg(!strstr(text, part), "\"%s\" in:\n%s", part, text)

START_TEST(a_rate_is_that_between_the_newest_frames_of_two_looks)
{
	struct stream_view v = { &looks[1], &looks[0] };

	point();
	ck_assert(stream_rate(&v) == 100);
	ck_assert(stream_reader_rate(&v, &readers[1][0]) > 99);
	ck_assert(stream_reader_rate(&v, &readers[1][1]) == 10);
	/* The time between two frames counts, not that between the looks. */
	looks[1].newest = 1001;
	looks[1].newest_ns = 10 * SECOND + 40 * MS;
	ck_assert(stream_rate(&v) == 25);
	looks[1].newest = 1000;
	ck_assert(stream_rate(&v) == 0);
	/* The first frame of all. */
	looks[0].newest = 0;
	looks[0].newest_ns = 0;
	looks[1].newest = 50;
	ck_assert(stream_rate(&v) == 50);
	/* Not known: numbers that go back, no earlier look, a reader that came between. */
	looks[0].newest = 51;
	ck_assert(stream_rate(&v) < 0);
	readers[1][1].joined_ns++;
	ck_assert(stream_reader_rate(&v, &readers[1][1]) < 0);
	v.before = NULL;
	ck_assert(stream_rate(&v) < 0);
	ck_assert(stream_reader_rate(&v, &readers[1][0]) < 0);
}
END_TEST

START_TEST(the_list_has_each_stream_and_reader)
{
	ck_assert_int_eq(print(1, NULL), CTL_OK);
	prints("STREAM");
	prints("cam/0 ");
	prints("running  ");
	prints("100.0");
	prints("4711 decode");
	prints("  reader 0  every");
	prints("4712 infer");
	prints("  reader 3  latest");
	prints("10.0");
	prints("890");
	prints("1/2");
	prints_no("stuck");
	prints_no("cam/0:");
	/* One look has no rates. */
	ck_assert_int_eq(print(0, NULL), CTL_OK);
	prints_no("100.0");
	ck_assert_int_eq(print(1, (char[]){ "other" }), CTL_OK);
	prints_no("cam/0");
}
END_TEST

START_TEST(a_reader_that_never_releases_is_named)
{
	struct gpushm_stream_reader *r = &readers[1][1];

	r->held = 1;
	r->oldest = 1050;
	r->oldest_ms = 12000;
	ck_assert_int_eq(print(1, NULL), CTL_OK);
	prints("stuck");
	prints("cam/0: reader 3 (4713 draw, 1002) has held frame 1050 for 12.0s; 50 frames are "
	       "newer\n");
	/* It delays nobody yet: other slots are free, or it has only just taken the frame. */
	r->oldest = 1094;
	print(1, NULL);
	prints_no("stuck");
	r->oldest = 1050;
	r->oldest_ms = 200;
	print(1, NULL);
	prints_no("stuck");
}
END_TEST

START_TEST(a_reader_that_takes_nothing_is_named)
{
	struct gpushm_stream_reader *r = &readers[1][0];

	r->held = 0;
	r->oldest = 0;
	r->lag = 8;
	looks[1].waiting_ms = 2500;
	print(1, NULL);
	prints("cam/0: reader 0 (4712 infer, 1001) takes no frame: 8 wait for it; the producer has "
	       "waited for 2.5s, and drops a reader after 10.0s\n");
	prints("waits");
	looks[1].limit_ms = GPUSHM_WAIT_FOREVER;
	print(1, NULL);
	prints("waited for 2.5s\n");
	/* A `latest` reader that takes nothing needs no frame. */
	r->follow = GPUSHM_LATEST;
	print(1, NULL);
	prints_no("stuck");
}
END_TEST

START_TEST(a_stream_without_a_producer_or_workers_is_reported)
{
	looks[1].state = GPUSHM_STREAM_ORPHANED;
	print(1, NULL);
	prints("orphaned");
	prints("cam/0: the producer died, and another one may continue the stream\n");
	looks[1].state = GPUSHM_STREAM_RUNNING;
	looks[1].waiting_ms = 1500;
	looks[1].queued = 7;
	print(1, NULL);
	prints("no `share` reader takes the 7 frames that are queued; the producer has waited for "
	       "1.5s\n");
	readers[1][0].dropped = 1;
	readers[1][1].suspect = 1;
	print(1, NULL);
	prints("reader 0 (4712 infer, 1001) was dropped, because it held up the producer\n");
	prints("reader 3 (4713 draw, 1002) is ending");
}
END_TEST

START_TEST(pids_that_a_stranger_may_not_know_are_left_out)
{
	for (int i = 0; i < 2; i++) {
		looks[i].pid = readers[i][0].pid = readers[i][1].pid = 0;
		readers[i][0].uid = readers[i][1].uid = (uid_t)-1;
	}
	readers[1][0].dropped = 1;
	print(1, NULL);
	prints("cam/0: reader 0 was dropped");
	prints_no("infer");
	ctl.json = "short";
	print(1, NULL);
	prints("\"pid\":null,\"uid\":null,\"user\":null,\"command\":null");
	prints_no("infer");
	prints_no("decode");
}
END_TEST

START_TEST(json_has_all_keys_and_null_for_what_is_not_there)
{
	ctl.json = "short";
	print(1, NULL);
	prints("[{\"name\":\"cam/"
	       "0\",\"pool\":\"gpu0\",\"id\":\"7\",\"uid\":1001,\"user\":\"1001\",");
	prints("\"state\":\"running\",\"slots\":8,\"slot_bytes\":4096,");
	prints("\"pid\":4711,\"command\":\"decode\",\"stalls\":");
	prints("\"newest\":1100,\"age_ms\":3.000,\"rate\":100.000,");
	prints("\"delivery\":\"at-least-once\",\"keep_queue\":false,\"limit_ms\":10000,");
	prints("\"oldest_reader\":0,\"readers\":[{\"reader\":0,\"follow\":\"every\",");
	prints("\"max_held\":2,\"dropped\":false,\"ending\":false,\"pid\":4712,");
	prints("\"held\":1,\"rate\":100.000,\"oldest\":1100,\"oldest_ms\":3,\"needs\":1100,"
	       "\"stuck\":false}");
	prints("\"oldest\":null,\"oldest_ms\":null,\"needs\":null");
	looks[1].newest = 0;
	looks[1].n_readers = 0;
	looks[1].limit_ms = GPUSHM_WAIT_FOREVER;
	print(0, NULL);
	next_look = 1;
	print(1, NULL);
	prints("\"newest\":null,\"age_ms\":null,\"rate\":null");
	prints("\"limit_ms\":null");
	prints("\"oldest_reader\":null,\"readers\":[]");
}
END_TEST

START_TEST(the_list_survives_numbers_of_a_producer_that_lies)
{
	looks[1].newest = UINT64_MAX;
	looks[1].newest_ns = UINT64_MAX;
	looks[1].slots = 0;
	readers[1][0].lag = UINT64_MAX;
	readers[1][0].oldest = UINT64_MAX;
	readers[1][0].oldest_ms = UINT64_MAX;
	readers[1][1].oldest_ms = readers[1][1].lag = UINT64_MAX;
	strcpy(looks[1].name, "a\033[2Jb");
	ck_assert_int_eq(print(1, NULL), CTL_OK);
	prints_no("\033");
	ctl.json = "pretty";
	ck_assert_int_eq(print(1, NULL), CTL_OK);
	looks[1].newest = 0;
	looks[1].queued = UINT64_MAX;
	ctl.json = NULL;
	ck_assert_int_eq(print(1, NULL), CTL_OK);
}
END_TEST

START_TEST(an_error_of_the_daemon_is_passed_on)
{
	failure = -ENOSYS;
	ck_assert_int_eq(print(1, NULL), CTL_FAILED);
	failure = -ECONNRESET;
	ck_assert_int_eq(print(1, NULL), CTL_NO_DAEMON);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("streams_text");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_rate_is_that_between_the_newest_frames_of_two_looks);
	tcase_add_test(tc, the_list_has_each_stream_and_reader);
	tcase_add_test(tc, a_reader_that_never_releases_is_named);
	tcase_add_test(tc, a_reader_that_takes_nothing_is_named);
	tcase_add_test(tc, a_stream_without_a_producer_or_workers_is_reported);
	tcase_add_test(tc, pids_that_a_stranger_may_not_know_are_left_out);
	tcase_add_test(tc, json_has_all_keys_and_null_for_what_is_not_there);
	tcase_add_test(tc, the_list_survives_numbers_of_a_producer_that_lies);
	tcase_add_test(tc, an_error_of_the_daemon_is_passed_on);
	return suite_run("streams_text", tc, NULL);
}
