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

static struct gpushm_status *status;
static struct gpushm_metrics *metrics;
static struct gpushm_pool_metrics pools[2];
static struct snapshot s;
static char *text;

static void setup(void)
{
	status = calloc(1, sizeof(*status));
	metrics = calloc(1, sizeof(*metrics));
	strcpy(status->software, "gpushmd 9.8.7");
	s = (struct snapshot){ .status = status, .metrics = metrics };
}

static void teardown(void)
{
	s.pools = NULL;
	snapshot_done(&s);
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
	strcpy(pools[0].pool.name, "a\"b\\c\nd");
	pools[0].pool.kind = GPUSHM_VMM;
	memset(pools[0].pool.device_uuid, 0xab, sizeof(pools[0].pool.device_uuid));
	pools[0].pool.bytes = UINT64_MAX;
	pools[0].sealed = 3;
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
	strcpy(pools[0].pool.name, "p");
	pools[0].pool.kind = GPUSHM_PINNED;
	memset(pools[0].pool.device_uuid, 1, sizeof(pools[0].pool.device_uuid));
	s.pools = pools;
	s.n_pools = 1;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints("gpushm_pool_used_bytes{pool=\"p\",kind=\"pinned\"} 0");
}
END_TEST

START_TEST(a_histogram_adds_up)
{
	uint64_t bounds[] = { 1000, 2500, 1000000000 };

	metrics->bounds_ns = malloc(sizeof(bounds));
	memcpy(metrics->bounds_ns, bounds, sizeof(bounds));
	metrics->n_bounds = array_size(bounds);
	metrics->verbs = calloc(1, sizeof(*metrics->verbs));
	metrics->n_verbs = 1;
	metrics->verbs[0] = (struct gpushm_verb_metrics){ .verb = "open", .ns = 5000000123 };
	metrics->verbs[0].buckets = calloc(4, sizeof(uint64_t));
	for (unsigned i = 0; i < 4; i++)
		metrics->verbs[0].buckets[i] = i + 1;
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
	status->refusals = calloc(3, sizeof(*status->refusals));
	status->n_refusals = 3;
	status->refusals[0] = (struct gpushm_refusal){ "LIMIT", 4 };
	status->refusals[1] = (struct gpushm_refusal){ "UNKNOWN", 2 };
	status->refusals[2] = (struct gpushm_refusal){ "UNKNOWN", 3 };
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints("gpushm_refusals_total{code=\"LIMIT\"} 4");
	prints("gpushm_refusals_total{code=\"UNKNOWN\"} 5");
	/* Also before the first one. */
	prints("gpushm_refusals_total{code=\"POOL_FULL\"} 0");
}
END_TEST

START_TEST(metrics_that_a_daemon_lacks_are_left_out)
{
	s.metrics = gpushm_metrics_free(metrics);
	s.status = gpushm_status_free(status);
	write_as(EXPOSITION_OPENMETRICS, SNAPSHOT_BY_OWNER);
	ck_assert_str_eq(text, "# HELP gpushm_up 1 if the daemon replies.\n"
			       "# TYPE gpushm_up gauge\ngpushm_up 0\n# EOF\n");
}
END_TEST

START_TEST(each_count_of_streams_is_printed)
{
	metrics->streams = (struct gpushm_stream_metrics){ .known = 1,
							   .running = 1,
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
	metrics->streams.known = 0;
	write_as(EXPOSITION_OPENMETRICS, 0);
	prints_no("gpushm_streams");
}
END_TEST

START_TEST(streams_are_labels_only_by_stream_and_up_to_a_bound)
{
	const size_t n = SNAPSHOT_STREAMS_MAX + 5;

	s.streams = calloc(n, sizeof(*s.streams));
	s.n_streams = n;
	for (size_t i = 0; i < n; i++) {
		s.streams[i].buffer = i + 1;
		snprintf(s.streams[i].name, sizeof(s.streams[i].name), "cam/%zu\"", i);
		s.streams[i].newest = 10 * i;
		s.streams[i].stalled_ns = 1500000000;
	}
	s.streams[1].name[0] = '\0';
	s.streams[2].n_readers = 2;
	s.streams[2].readers = calloc(2, sizeof(struct gpushm_stream_reader));
	s.streams[2].readers[0] = (struct gpushm_stream_reader){ .lag = 7, .oldest_ms = 9000 };
	s.streams[2].readers[1] =
		(struct gpushm_stream_reader){ .lag = 3, .held = 1, .oldest_ms = 2500 };
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
	status->usage = calloc(1, sizeof(*status->usage));
	status->n_usage = 1;
	status->usage[0] = (struct gpushm_usage){ .uid = 4000000000, .bytes = 7, .peers = 2 };
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
