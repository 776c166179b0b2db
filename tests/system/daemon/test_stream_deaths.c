/* SPDX-License-Identifier: MIT
 *
 * What the daemon does with the words of a stream when a producer or a reader ends: only when the
 * process has really gone, never when its socket closes. The processes are actors: the test writes
 * the words for them.
 */
#include "client/gpushm_events.h"
#include "client/gpushm_metrics.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/stream_sides.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <string.h>

static void setup(void)
{
	client_setup_with(CENSUS_CONFIG);
	sides_start(d.socket);
	sides_make_stream();
}

static void teardown(void)
{
	sides_end();
	client_teardown();
}

static bool is_dirty(void)
{
	ck_assert_int_eq(raw_call(&q, REQUEST(STAT, Stat, stat, BYTES(name, "s"))), 0);
	return q.reply->stat->dirty;
}

/* ---- readers ---- */

/* A kernel of the reader may still read the frame while the process is being killed, or after it
 * has closed its socket. */
START_TEST(a_frame_stays_with_its_reader_until_the_process_ends)
{
	struct stream_reader_page *own;
	uint32_t i = raw_join(&q, reader, STREAM_EVERY);

	own = raw_map_page(&q, reader, STREAM_PAGE_READER + i);
	own->claims[1].claim = stream_claim_word(3, STREAM_CLAIMED);
	raw_close(&q);
	client_await(client_status().suspects == 1);
	poll(NULL, 0, 50);
	ck_assert_uint_eq(own->claims[1].claim, stream_claim_word(3, STREAM_CLAIMED));
	ck_assert_uint_eq(head->active, 1u << i);
	ck_assert(raw_stream_info(&p, "s")->readers[0]->suspect);

	actor_kill(&reader_process);
	client_await(head->active == 0);
	ck_assert_uint_eq(own->claims[1].claim, 0);
	ck_assert_uint_eq(own->claims[1].released, STREAM_RELEASED_ALL);
	ck_assert_uint_eq(head->seats[i].state, STREAM_SEAT_FREE);
}
END_TEST

START_TEST(a_readers_death_wakes_the_producer)
{
	struct stream_reader_page *own;
	uint32_t i = raw_join(&q, reader, STREAM_EVERY), wake = head->wake, released;

	own = raw_map_page(&q, reader, STREAM_PAGE_READER + i);
	released = own->released_count;
	reader_dies();
	client_await(head->wake != wake && own->released_count != released);
}
END_TEST

START_TEST(a_dead_members_frame_is_given_to_the_group)
{
	struct stream_group_page *group = raw_map_page(&p, producer, STREAM_PAGE_GROUP);
	struct stream_reader_page *own;
	uint64_t other = raw_open(&p, "s");
	uint32_t i = raw_join(&q, reader, STREAM_SHARE);

	raw_join(&p, other, STREAM_SHARE);
	raw_publish_frame(head, 0, 1, true);
	own = raw_map_page(&q, reader, STREAM_PAGE_READER + i);
	group = raw_map_page(&q, reader, STREAM_PAGE_GROUP);
	own->claims[0].claim = stream_claim_word(1, STREAM_CLAIMED);
	group->owner[0] = stream_owner(1, i);
	group->next = 2;
	reader_dies();
	client_await(head->active == 2);
	ck_assert_uint_eq(group->owner[0], stream_owner(1, STREAM_REDO));
	ck_assert_uint_eq(own->claims[0].claim, 0);
	raw_close_lease(&p, other);
}
END_TEST

START_TEST(deaths_at_the_same_time_are_both_found)
{
	uint32_t i = raw_join(&q, reader, STREAM_EVERY);

	raw_close(&p);
	raw_close(&q);
	kill(producer_process.pid, SIGKILL);
	actor_kill(&reader_process);
	actor_kill(&producer_process);
	client_await(head->state == STREAM_ORPHANED && head->active == 0);
	ck_assert_uint_eq(head->seats[i].state, STREAM_SEAT_FREE);
}
END_TEST

/* ---- producers ---- */

START_TEST(an_unfinished_frame_of_a_dead_producer_is_broken)
{
	raw_join(&q, reader, STREAM_EVERY);
	raw_publish_frame(head, 0, 1, true);
	raw_publish_frame(head, 1, 2, false);
	head->slot[2].begun_ns = 5; /* it fills that one */
	producer_dies();
	client_await(head->state == STREAM_ORPHANED);
	ck_assert_uint_eq(head->slot[0].broken, 0);
	ck_assert_uint_eq(head->slot[0].ready, 1);
	ck_assert_uint_eq(head->slot[1].broken, 2);
	ck_assert_uint_eq(head->slot[1].ready, 2);
	ck_assert_uint_eq(head->slot[2].seq, 0);
	ck_assert(!is_dirty());
	ck_assert_uint_eq(raw_stream_info(&q, "s")->state, STREAM_ORPHANED);
}
END_TEST

START_TEST(a_stream_that_was_not_published_dies_with_its_producer)
{
	uint64_t lease = raw_create(&p, "t", 16384);

	ck_assert_int_eq(raw_make_stream(&p, lease, 4, 4096, 1), 0);
	ck_assert_int_eq(raw_page(&p, lease, STREAM_PAGE_HEAD), 0);
	producer_dies();
	client_await(client_status().leases == 1);
	ck_assert_int_eq(raw_call(&q, REQUEST(STAT, Stat, stat, BYTES(name, "t"))), CODE_NOT_FOUND);
	ck_assert_ptr_null(raw_stream_info(&q, "t"));
}
END_TEST

START_TEST(a_producer_that_closes_its_socket_stays_the_producer)
{
	raw_publish_frame(head, 0, 1, true);
	raw_close(&p);
	client_await(client_status().suspects == 1);
	ck_assert_uint_eq(head->state, STREAM_RUNNING);
	ck_assert_int_eq(raw_continue(&q, "s", 0), CODE_STATE);
	ck_assert_ptr_nonnull(strstr(q.text, "still runs"));
}
END_TEST

/* It has said itself that it has ended, and died before its CLOSE arrived. */
START_TEST(a_producer_that_had_ended_leaves_no_orphan)
{
	head->state = STREAM_ENDED;
	producer_dies();
	client_await(client_status().leases == 1);
	ck_assert_uint_eq(head->state, STREAM_ENDED);
	ck_assert_int_eq(raw_continue(&q, "s", 0), CODE_EXISTS);
}
END_TEST

/* The daemon replies when the producer has gone. */
static void wait_as_successor(struct raw *r)
{
	raw_request(r,
		    REQUEST(OPEN, Open, open, BYTES(name, "s"), SET(wait_ms, 60000),
			    SET(access, GPUSHM__PROTO__ACCESS__ACCESS_WRITE), SET(produce, true)));
	client_await(client_waiting() == 1);
}

START_TEST(a_successor_waits_for_the_producers_death)
{
	struct actor other;
	struct raw r;

	raw_join(&q, reader, STREAM_EVERY);
	raw_publish_frame(head, 0, 1, true);
	actor_start(&other, d.socket, getuid(), getgid());
	raw_greet_as(&r, &other);
	wait_as_successor(&r);
	producer_dies();
	ck_assert_msg(raw_receive(&r) == 0, "%s", r.text);
	ck_assert_uint_eq(head->state, STREAM_RUNNING);
	ck_assert_uint_eq(head->producers, 2);
	ck_assert_uint_eq(head->active, 1);
	ck_assert_uint_eq(head->newest, 1);
	ck_assert_int_eq(raw_page(&r, r.reply->attach->lease, STREAM_PAGE_HEAD), 0);
	ck_assert(r.reply->page->writable);
	ck_assert_int_eq(raw_continue(&q, "s", 0), CODE_STATE);
	side_end(&other, &r);
	client_await(head->state == STREAM_ORPHANED);
}
END_TEST

START_TEST(a_waiting_successor_is_refused_when_the_producer_closes)
{
	wait_as_successor(&q);
	ck_assert_int_eq(raw_close_lease(&p, producer), 0);
	ck_assert_int_eq(raw_receive(&q), CODE_EXISTS);
}
END_TEST

/* ---- what others learn of it ---- */

static void expect_event(const char *type, const char *name, pid_t pid)
{
	const struct gpushm_events_options o = { sizeof(o), 0, 60000, type };
	const struct gpushm_logged_event *e;
	struct gpushm_events *got = NULL;

	ck_assert_msg(gpushm_events(c, &o, &got) == 0, "%s", gpushm_error());
	ck_assert_msg(got->n_events == 1, "%zu events %s", got->n_events, type);
	e = got->events[0];
	ck_assert_str_eq(e->type, type);
	ck_assert_str_eq(e->name, name);
	ck_assert_int_eq(e->pid, pid);
	gpushm_free(got);
}

START_TEST(each_event_of_a_stream_is_told)
{
	pid_t first = producer_process.pid;
	uint32_t i = raw_join(&q, reader, STREAM_EVERY);

	expect_event("joined", "s", reader_process.pid);
	ck_assert_int_eq(raw_drop(&p, producer, i, 1), 0);
	expect_event("dropped", "s", reader_process.pid);
	ck_assert_uint_eq(daemon_log_count(&d, "does not follow stream \"s\" any more"), 1);
	producer_dies();
	expect_event("orphaned", "s", first);
	ck_assert_int_eq(raw_continue(&q, "s", 0), 0);
	expect_event("continued", "s", reader_process.pid);
	ck_assert_uint_eq(daemon_log_count(&d, "stream \"s\" has lost its producer"), 1);
}
END_TEST

static struct gpushm_stream_metrics metrics(void)
{
	struct gpushm_stream_metrics copy;
	struct gpushm_metrics *m = NULL;

	ck_assert_msg(gpushm_metrics(c, &m) == 0, "%s", gpushm_error());
	ck_assert_ptr_nonnull(m->streams);
	copy = *m->streams;
	gpushm_free(m);
	return copy;
}

START_TEST(metrics_count_what_happened_to_streams)
{
	struct gpushm_stream_metrics m = metrics();

	ck_assert(m.running == 1 && m.every == 0 && m.frames == 0);
	raw_join(&q, reader, STREAM_SHARE);
	raw_publish_frame(head, 0, 1, true);
	raw_publish_frame(head, 1, 2, true);
	head->stalls = 3;
	head->waited_ns = 1;
	m = metrics();
	ck_assert(m.share == 1 && m.frames == 2 && m.stalls == 3 && m.waiting == 1);
	reader_dies();
	client_await(metrics().share == 0);
	m = metrics();
	ck_assert(m.reader_deaths == 1 && m.producer_deaths == 0);
	producer_dies();
	client_await(metrics().orphaned == 1);
	m = metrics();
	ck_assert(m.running == 0 && m.producer_deaths == 1 && m.waiting == 0);
	ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
	/* What it counted stays. */
	m = metrics();
	ck_assert(m.orphaned == 0 && m.frames == 2 && m.stalls == 3);
}
END_TEST

/* ---- a GPU that waits for a reader ---- */

static uint64_t produce_impatiently(const char *name)
{
	uint64_t lease = raw_create(&p, name, 16384);

	ck_assert_int_eq(raw_call(&p,
				  REQUEST(STREAM, Stream, stream, SET(lease, lease), SET(slots, 4),
					  SET(slot_bytes, 4096), SET(limit_ms, 10))),
			 0);
	raw_publish(&p, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	return lease;
}

/* The producer has enqueued a wait for the reader's release, which the reader's GPU never does. */
START_TEST(a_reader_that_a_gpu_waits_for_is_dropped)
{
	uint64_t lease = produce_impatiently("t"), other = raw_open(&q, "t");
	uint32_t i = raw_join(&q, other, STREAM_LATEST);
	struct stream_head *h = raw_map_page(&p, lease, STREAM_PAGE_HEAD);
	struct stream_reader_page *own = raw_map_page(&q, other, STREAM_PAGE_READER + i);

	own->claims[2].claim = stream_claim_word(1, STREAM_RELEASING);
	*stream_awaited(h, 4, stream_order_size(4), h->readers, 2, i) =
		stream_claim_end(own->claims[2].claim);
	h->slot[2].begun_ns = clock_monotonic_ns();
	h->slot[2].waits = 1u << i;
	client_await(h->seats[i].state == STREAM_SEAT_DROPPED);
	ck_assert_uint_eq(own->claims[2].released, STREAM_RELEASED_ALL);
	ck_assert_uint_eq(raw_stream_info(&p, "t")->dropped, 1);
	raw_close_lease(&q, other);
	raw_close_lease(&p, lease);
	ck_assert_int_eq(gpushm_unlink(c, "t"), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stream_deaths");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_frame_stays_with_its_reader_until_the_process_ends);
	tcase_add_test(tc, a_readers_death_wakes_the_producer);
	tcase_add_test(tc, a_dead_members_frame_is_given_to_the_group);
	tcase_add_test(tc, deaths_at_the_same_time_are_both_found);
	tcase_add_test(tc, an_unfinished_frame_of_a_dead_producer_is_broken);
	tcase_add_test(tc, a_stream_that_was_not_published_dies_with_its_producer);
	tcase_add_test(tc, a_producer_that_closes_its_socket_stays_the_producer);
	tcase_add_test(tc, a_producer_that_had_ended_leaves_no_orphan);
	tcase_add_test(tc, a_successor_waits_for_the_producers_death);
	tcase_add_test(tc, a_waiting_successor_is_refused_when_the_producer_closes);
	tcase_add_test(tc, each_event_of_a_stream_is_told);
	tcase_add_test(tc, metrics_count_what_happened_to_streams);
	tcase_add_test(tc, a_reader_that_a_gpu_waits_for_is_dropped);
	return suite_run("stream_deaths", tc, NULL);
}
