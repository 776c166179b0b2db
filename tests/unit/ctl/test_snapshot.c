/* SPDX-License-Identifier: MIT
 *
 * The text of the metrics: escapes, numbers without loss, pools of one name, codes of a later
 * daemon, and no daemon. Prometheus refuses a text in which a sample occurs twice.
 */
#include "client/ctl/snapshot.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct gpushm_status status[1];
static struct gpushm_metrics metrics[1];
static struct gpushm_pool pool;
static struct gpushm_pool_metrics of_pool, *pools[] = { &of_pool };
static struct snapshot s;
static char *text;

static void setup(void)
{
	of_pool.pool = &pool;
	strcpy(status->software, "gpushmd 9.8.7");
	s = (struct snapshot){ .status = status, .metrics = metrics };
}

static void teardown(void)
{
	free_ptr(&text);
}

static void write_as(enum exposition_format format, unsigned by)
{
	size_t len;
	struct exposition e = { .format = format };

	free_ptr(&text);
	e.out = open_memstream(&text, &len);
	snapshot_write(&s, &e, by);
	ck_assert_int_eq(fclose(e.out), 0);
}

#define prints(line) ck_assert_msg(strstr(text, line "\n"), "no \"%s\" in:\n%s", line, text)
#define prints_no(part) ck_assert_msg(!strstr(text, part), "\"%s\" in:\n%s", part, text)

START_TEST(labels_and_numbers_are_written_correctly)
{
	strcpy(pool.name, "a\"b\\c\nd");
	pool.kind = GPUSHM_VMM;
	memset(pool.device_uuid, 0xab, sizeof(pool.device_uuid));
	pool.bytes = UINT64_MAX;
	of_pool.sealed = 3;
	metrics->started_ns = 1700000000000000001;
	s.pools = pools;
	s.n_pools = 1;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints("gpushm_pool_size_bytes{pool=\"a\\\"b\\\\c\\nd\",kind=\"vmm\","
	       "UUID=\"GPU-abababab-abab-abab-abab-abababababab\"} 18446744073709551615");
	prints("gpushm_buffers{pool=\"a\\\"b\\\\c\\nd\",state=\"sealed\"} 3");
	prints("gpushm_start_time_seconds 1700000000.000000001");
	prints("gpushm_build_info{version=\"9.8.7\"} 1");
	prints("# TYPE gpushm_build info");
	ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
	write_as(EXPOSITION_PROMETHEUS, 0);
	prints("# TYPE gpushm_build_info gauge");
	prints("# TYPE gpushm_restarts_total counter");
	prints_no("# EOF");
	prints_no("# UNIT");
}
END_TEST

START_TEST(host_memory_has_no_gpu)
{
	strcpy(pool.name, "p");
	pool.kind = GPUSHM_PINNED;
	memset(pool.device_uuid, 1, sizeof(pool.device_uuid));
	s.pools = pools;
	s.n_pools = 1;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints("gpushm_pool_used_bytes{pool=\"p\",kind=\"pinned\"} 0");
}
END_TEST

START_TEST(a_histogram_adds_up)
{
	uint64_t bounds[] = { 1000, 2500, 1000000000 };

	uint64_t buckets[] = { 1, 2, 3, 4 };
	struct gpushm_verb_metrics open = { .verb = "open", .ns = 5000000123, .buckets = buckets };
	struct gpushm_verb_metrics *verbs[] = { &open };

	metrics->bounds_ns = bounds;
	metrics->n_bounds_ns = array_size(bounds);
	metrics->verbs = verbs;
	metrics->n_verbs = 1;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints("gpushm_request_seconds_bucket{verb=\"open\",le=\"0.000001\"} 1");
	prints("gpushm_request_seconds_bucket{verb=\"open\",le=\"0.0000025\"} 3");
	prints("gpushm_request_seconds_bucket{verb=\"open\",le=\"1.0\"} 6");
	prints("gpushm_request_seconds_bucket{verb=\"open\",le=\"+Inf\"} 10");
	prints("gpushm_request_seconds_count{verb=\"open\"} 10");
	prints("gpushm_request_seconds_sum{verb=\"open\"} 5.000000123");
	/* It never waited. */
	prints_no("gpushm_wait_seconds_count");
}
END_TEST

START_TEST(codes_without_a_word_are_one_sample)
{
	struct gpushm_refusal limit = { .code = "LIMIT", .count = 4 };
	struct gpushm_refusal one = { .code = "UNKNOWN", .count = 2 };
	struct gpushm_refusal another = { .code = "UNKNOWN", .count = 3 };
	struct gpushm_refusal *list[] = { &limit, &one, &another };

	status->refusals = list;
	status->n_refusals = array_size(list);
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints("gpushm_refusals_total{code=\"LIMIT\"} 4");
	prints("gpushm_refusals_total{code=\"UNKNOWN\"} 5");
	/* Also before the first one. */
	prints("gpushm_refusals_total{code=\"POOL_FULL\"} 0");
}
END_TEST

START_TEST(metrics_that_a_daemon_lacks_are_left_out)
{
	s.metrics = NULL;
	s.status = NULL;
	write_as(EXPOSITION_OPENMETRICS, SNAPSHOT_BY_OWNER);
	ck_assert_str_eq(text, "# HELP gpushm_up 1 if the daemon replies.\n"
			       "# TYPE gpushm_up gauge\ngpushm_up 0\n# EOF\n");
}
END_TEST

START_TEST(each_count_of_streams_is_printed)
{
	struct gpushm_stream_metrics m = { .running = 1,
					   .ended = 2,
					   .orphaned = 3,
					   .every = 4,
					   .latest = 5,
					   .share = 6,
					   .waiting = 7,
					   .frames = 8,
					   .stalls = 9,
					   .stalled_ns = 10500000000,
					   .dropped = 11,
					   .redone = 12,
					   .lost = 13,
					   .reader_deaths = 14,
					   .producer_deaths = 15 };

	metrics->streams = &m;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints("gpushm_streams{state=\"running\"} 1");
	prints("gpushm_streams{state=\"ended\"} 2");
	prints("gpushm_streams{state=\"orphaned\"} 3");
	prints("gpushm_streams_readers{follow=\"every\"} 4");
	prints("gpushm_streams_readers{follow=\"latest\"} 5");
	prints("gpushm_streams_readers{follow=\"share\"} 6");
	prints("gpushm_streams_waiting 7");
	prints("gpushm_streams_frames_total 8");
	prints("gpushm_streams_stall_seconds_count 9");
	prints("gpushm_streams_stall_seconds_sum 10.5");
	prints("gpushm_streams_dropped_total 11");
	prints("gpushm_streams_redone_total 12");
	prints("gpushm_streams_lost_total 13");
	prints("gpushm_streams_deaths_total{role=\"reader\"} 14");
	prints("gpushm_streams_deaths_total{role=\"producer\"} 15");
	metrics->streams = NULL;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints_no("gpushm_streams");
}
END_TEST

START_TEST(streams_are_labels_only_by_stream_and_up_to_a_bound)
{
	static struct gpushm_stream_info streams[SNAPSHOT_STREAMS_MAX + 5];
	static struct gpushm_stream_info *list[array_size(streams)];
	struct gpushm_stream_reader ahead = { .lag = 7, .oldest_ms = 9000 };
	struct gpushm_stream_reader holds = { .lag = 3, .held = 1, .oldest_ms = 2500 };
	struct gpushm_stream_reader *readers[] = { &ahead, &holds };

	for (size_t i = 0; i < array_size(streams); i++) {
		list[i] = &streams[i];
		streams[i].buffer = i + 1;
		snprintf(streams[i].name, sizeof(streams[i].name), "cam/%zu\"", i);
		streams[i].newest = 10 * i;
		streams[i].stalled_ns = 1500000000;
	}
	streams[1].name[0] = '\0';
	streams[2].n_readers = array_size(readers);
	streams[2].readers = readers;
	s.streams = list;
	s.n_streams = array_size(list);
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints_no("cam/");
	write_as(EXPOSITION_OPENMETRICS, SNAPSHOT_BY_STREAM);
	prints("gpushm_stream_frames_total{stream=\"cam/3\\\"\",id=\"4\"} 30");
	prints("gpushm_stream_frames_total{id=\"2\"} 10");
	prints("gpushm_stream_stalled_seconds_total{stream=\"cam/0\\\"\",id=\"1\"} 1.5");
	prints("gpushm_stream_readers{stream=\"cam/2\\\"\",id=\"3\"} 2");
	prints("gpushm_stream_lag_frames{stream=\"cam/2\\\"\",id=\"3\"} 7");
	prints("gpushm_stream_held_seconds{stream=\"cam/2\\\"\",id=\"3\"} 2.5");
	prints("gpushm_stream_held_seconds{stream=\"cam/0\\\"\",id=\"1\"} 0.0");
	prints("gpushm_stream_readers{stream=\"cam/99\\\"\",id=\"100\"} 0");
	prints_no("id=\"101\"");
}
END_TEST

START_TEST(users_are_labels_only_by_owner)
{
	struct gpushm_usage usage = { .uid = 4000000000, .bytes = 7, .peers = 2 };
	struct gpushm_usage *list[] = { &usage };

	status->usage = list;
	status->n_usage = 1;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints_no("uid=");
	write_as(EXPOSITION_OPENMETRICS, SNAPSHOT_BY_OWNER);
	prints("gpushm_owner_bytes{uid=\"4000000000\"} 7");
	prints("gpushm_owner_peers{uid=\"4000000000\"} 2");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("snapshot");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, labels_and_numbers_are_written_correctly);
	tcase_add_test(tc, host_memory_has_no_gpu);
	tcase_add_test(tc, a_histogram_adds_up);
	tcase_add_test(tc, codes_without_a_word_are_one_sample);
	tcase_add_test(tc, metrics_that_a_daemon_lacks_are_left_out);
	tcase_add_test(tc, each_count_of_streams_is_printed);
	tcase_add_test(tc, streams_are_labels_only_by_stream_and_up_to_a_bound);
	tcase_add_test(tc, users_are_labels_only_by_owner);
	return suite_run("snapshot", tc, NULL);
}
