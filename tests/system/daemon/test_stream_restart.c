/* SPDX-License-Identifier: MIT
 *
 * Streams over the daemon's death and over a planned restart. The daemon's supervisor has the pages
 * meanwhile; who died in between is found at the start.
 */
#include "proto/base/own.h"
#include "tests/lib/fake.h"
#include "tests/lib/kept.h"
#include "tests/lib/reexec.h"
#include "tests/lib/stream_sides.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct stream_reader_page *own;
static uint32_t seat;

static void begin(const char *socket)
{
	sides_start(socket);
	sides_make_stream();
	seat = raw_join(&q, reader, STREAM_EVERY);
	own = raw_map_page(&q, reader, STREAM_PAGE_READER + seat);
}

static void setup(void)
{
	kept_setup();
	begin(k.socket);
	own->claims[1].claim = stream_claim_word(1, STREAM_CLAIMED);
}

static void teardown(void)
{
	sides_end();
	client_await(supervisor_count(&k, 's') == 0);
	kept_teardown();
}

/* Both sides are back: nothing of the stream has changed, and it goes on. */
static void expect_unharmed(uint64_t claim)
{
	const struct stream_reader_page *seen;

	ck_assert_uint_eq(head->state, STREAM_RUNNING);
	ck_assert_uint_eq(head->producers, 1);
	ck_assert_uint_eq(head->active, 1u << seat);
	ck_assert_uint_eq(own->claims[1].claim, claim);

	/* It is the same memory. */
	seen = raw_map_page(&p, producer, STREAM_PAGE_READER + seat);
	own->taken++;
	ck_assert_uint_eq(seen->taken, own->taken);
	ck_assert_uint_eq(raw_join(&q, reader, STREAM_EVERY), seat);
	ck_assert_uint_eq(q.reply->joined->generation, 1);
	ck_assert_uint_eq(raw_stream_info(&q, "s")->readers[0]->taken, own->taken);
}

static void planned_restart(void)
{
	unsigned ready = k.ready;

	ck_assert_int_eq(kill(k.pid, SIGUSR2), 0);
	client_await(k.ready > ready);
}

START_TEST(a_stream_goes_on_after_a_restart)
{
	kept_crash();
	both_return();
	expect_unharmed(stream_claim_word(1, STREAM_CLAIMED));
	ck_assert_int_eq(raw_close_lease(&q, reader), 0);
	ck_assert_uint_eq(own->claims[1].released, STREAM_RELEASED_ALL);
	reader = raw_open(&q, "s");
	ck_assert_uint_eq(raw_join(&q, reader, STREAM_LATEST), seat);
	ck_assert_uint_eq(q.reply->joined->generation, 2);
}
END_TEST

static const Gpushm__Proto__StreamMetrics *metrics(void)
{
	ck_assert_int_eq(raw_call(&p, REQUEST(METRICS, Metrics, metrics)), 0);
	ck_assert_ptr_nonnull(p.reply->metrics->streams);
	return p.reply->metrics->streams;
}

/* A counter that begins anew with a large number looks like a burst of frames. */
START_TEST(frames_before_a_restart_are_not_counted_again)
{
	raw_publish_frame(head, 0, 1000, true);
	head->stalls = 5;
	ck_assert_uint_eq(metrics()->frames, 1000);
	ck_assert_uint_eq(metrics()->stalls, 5);
	kept_crash();
	both_return();
	ck_assert_uint_eq(metrics()->frames, 0);
	ck_assert_uint_eq(metrics()->stalls, 0);
	raw_publish_frame(head, 1, 1003, true);
	ck_assert_uint_eq(metrics()->frames, 3);
	ck_assert_uint_eq(raw_stream_info(&p, "s")->newest, 1003);
	/* A producer may say what it likes. */
	head->newest = 7;
	ck_assert_uint_eq(metrics()->frames, 0);
}
END_TEST

/* As by systemctl restart: the processes go on. */
START_TEST(a_stream_goes_on_after_a_stop)
{
	supervisor_end(&k, SIGTERM);
	ck_assert_uint_eq(head->state, STREAM_RUNNING);
	ck_assert_uint_eq(head->active, 1u << seat);
	ck_assert_uint_eq(own->claims[1].claim, stream_claim_word(1, STREAM_CLAIMED));
	supervisor_start(&k);
	both_return();
	expect_unharmed(stream_claim_word(1, STREAM_CLAIMED));
}
END_TEST

START_TEST(a_readers_death_without_a_daemon_is_found_at_the_start)
{
	supervisor_end(&k, SIGKILL);
	reader_dies();
	ck_assert_uint_eq(own->claims[1].claim, stream_claim_word(1, STREAM_CLAIMED));
	supervisor_start(&k);
	ck_assert_uint_eq(head->active, 0);
	ck_assert_uint_eq(head->seats[seat].state, STREAM_SEAT_FREE);
	ck_assert_uint_eq(own->claims[1].claim, 0);
	ck_assert_uint_eq(own->claims[1].released, STREAM_RELEASED_ALL);
	producer_returns();
	ck_assert_uint_eq(raw_stream_info(&p, "s")->n_readers, 0);
}
END_TEST

/* The journal that the killed daemon was started with names the page, until there is another. */
START_TEST(a_daemon_that_dies_in_its_start_leaves_what_its_journal_names)
{
	if (supervisor_skips("a_daemon_that_dies_in_its_start_leaves_what_its_journal_names"))
		return;
	supervisor_end(&k, SIGKILL);
	reader_dies();
	k.last_forgotten = 's';
	supervisor_spawn(&k);
	client_await(k.is_cut);
	k.last_forgotten = '\0';
	kept_crash();
	ck_assert_uint_eq(supervisor_log_count(&k, "can't be restored"), 0);
	ck_assert_uint_eq(head->seats[seat].state, STREAM_SEAT_FREE);
	ck_assert_uint_eq(own->claims[1].released, STREAM_RELEASED_ALL);
	producer_returns();
}
END_TEST

START_TEST(a_producers_death_without_a_daemon_is_found_at_the_start)
{
	raw_publish_frame(head, 0, 1, false);
	supervisor_end(&k, SIGKILL);
	producer_dies();
	ck_assert_uint_eq(head->state, STREAM_RUNNING);
	supervisor_start(&k);
	ck_assert_uint_eq(head->state, STREAM_ORPHANED);
	ck_assert_uint_eq(head->slot[0].broken, 1);
	reader_returns();
	ck_assert_int_eq(raw_call(&q, REQUEST(STAT, Stat, stat, BYTES(name, "s"))), 0);
	ck_assert(!q.reply->stat->dirty);
	ck_assert_int_eq(raw_continue(&q, "s", 0), 0);
	producer = q.reply->attach->lease;
	ck_assert_uint_eq(head->producers, 2);

	kept_crash();
	ck_assert_uint_eq(head->state, STREAM_RUNNING);
	ck_assert_uint_eq(head->producers, 2);
}
END_TEST

/* Its process lives: that it has closed the lease shows when it comes back. */
START_TEST(a_readers_close_without_a_daemon_is_found_at_its_return)
{
	kept_crash();
	ck_assert_uint_eq(head->active, 1u << seat);
	side_returns(&q, &reader_process, &q_session, 0);
	ck_assert_uint_eq(head->active, 0);
	ck_assert_uint_eq(own->claims[1].claim, 0);
}
END_TEST

START_TEST(a_restart_remembers_who_was_dropped_and_who_left)
{
	uint64_t other = raw_open(&q, "s");
	uint32_t second = raw_join(&q, other, STREAM_EVERY);

	ck_assert_int_eq(raw_drop(&p, producer, seat, 1), 0);
	ck_assert_int_eq(raw_leave(&q, other), 0);
	kept_crash();
	producer_returns();
	ck_assert_uint_eq(head->active, 0);
	ck_assert_uint_eq(head->seats[seat].state, STREAM_SEAT_DROPPED);
	ck_assert_uint_eq(head->seats[second].state, STREAM_SEAT_FREE);
	ck_assert_uint_eq(raw_stream_info(&p, "s")->n_readers, 1);
	ck_assert(raw_stream_info(&p, "s")->readers[0]->dropped);
	ck_assert_uint_eq(raw_stream_info(&p, "s")->dropped, 1);
	ck_assert_uint_eq(supervisor_log_count(&k, "can't be restored"), 0);
}
END_TEST

/* The daemon died before it could write that into the journal. Claims of that reader are gone: it
 * must not be there again as if nothing had happened. */
START_TEST(a_restart_completes_a_drop)
{
	head->seats[seat].state = STREAM_SEAT_DROPPED;
	head->active = head->every = 0;
	kept_crash();
	both_return();
	ck_assert_uint_eq(head->seats[seat].state, STREAM_SEAT_DROPPED);
	ck_assert_uint_eq(head->active, 0);
	ck_assert(raw_stream_info(&p, "s")->readers[0]->dropped);
	ck_assert_int_eq(raw_join_as(&q, reader, STREAM_EVERY, 1), CODE_STATE);
}
END_TEST

/* Nor into the words, that it has joined. */
START_TEST(a_restart_completes_a_join)
{
	head->seats[seat].state = STREAM_SEAT_FREE;
	head->seats[seat].generation = 0;
	head->active = head->every = 0;
	kept_crash();
	ck_assert_uint_eq(head->active, 1u << seat);
	ck_assert_uint_eq(head->every, 1u << seat);
	ck_assert_uint_eq(head->seats[seat].generation, 1);
}
END_TEST

START_TEST(an_ended_stream_stays_ended_after_a_restart)
{
	ck_assert_int_eq(raw_close_lease(&p, producer), 0);
	kept_crash();
	ck_assert_uint_eq(head->state, STREAM_ENDED);
	reader_returns();
	ck_assert_int_eq(raw_continue(&q, "s", 0), CODE_EXISTS);
	ck_assert_uint_eq(raw_stream_info(&q, "s")->state, STREAM_ENDED);
}
END_TEST

/* The producer knows a reader's page by the generation of its seat. */
START_TEST(each_generation_is_new)
{
	uint64_t other, last = 0;

	for (int i = 0; i < 1500; i++) {
		other = raw_open(&q, "s");
		raw_join(&q, other, STREAM_LATEST);
		ck_assert_uint_gt(q.reply->joined->generation, last);
		last = q.reply->joined->generation;
		raw_close_lease(&q, other);
		if (i % 750 == 749) {
			kept_crash();
			both_return();
		}
	}
}
END_TEST

START_TEST(the_supervisor_has_the_pages_that_are_in_use)
{
	size_t before = supervisor_count(&k, 's');

	ck_assert_uint_eq(before, 3);
	raw_close_lease(&q, reader);
	client_await(supervisor_count(&k, 's') == before - 1);
	reader = raw_open(&q, "s");
	raw_join(&q, reader, STREAM_EVERY);
	client_await(supervisor_count(&k, 's') == before);
	raw_drop(&p, producer, 0, 2);
	kept_crash();
	client_await(supervisor_count(&k, 's') == before);
}
END_TEST

START_TEST(a_stream_goes_on_after_a_planned_restart)
{
	planned_restart();
	both_return();
	expect_unharmed(stream_claim_word(1, STREAM_CLAIMED));
	reader_dies();
	client_await(own->claims[1].claim == 0);
	kept_crash();
	producer_returns();
	ck_assert_int_eq(raw_page(&p, producer, STREAM_PAGE_GROUP), 0);
}
END_TEST

/* With the fake driver the default pool is that of a GPU. Its readers would wait for a producer
 * that never comes. */
START_TEST(a_stream_whose_memory_is_lost_ends)
{
	struct stream_head *stays;
	uint64_t lease;

	if (!fake_is_here() || supervisor_skips("a_stream_whose_memory_is_lost_ends"))
		return;
	setup();
	ck_assert_int_eq(raw_call(&p, REQUEST(CREATE, Create, create, BYTES(name, "stays"),
					      BYTES(pool, "host"), SET(size_bytes, 4096))),
			 0);
	lease = p.reply->attach->lease;
	ck_assert_int_eq(raw_make_stream(&p, lease, 2, 2048, 1), 0);
	raw_publish(&p, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	stays = raw_map_page(&p, lease, STREAM_PAGE_HEAD);
	supervisor_end(&k, SIGKILL);
	setenv("FAKECUDA_EPOCH", "1", 1);
	supervisor_start(&k);
	/* The daemon ends the stream first, and drops its readers then. */
	client_await(head->state == STREAM_ENDED && head->active == 0);
	client_await(own->claims[1].released == STREAM_RELEASED_ALL);
	ck_assert_uint_eq(stays->state, STREAM_RUNNING);
	side_returns(&p, &producer_process, &p_session, lease);
	ck_assert_ptr_null(raw_stream_info(&p, "s"));
	ck_assert_int_eq(raw_close_lease(&p, lease), 0);
	ck_assert_int_eq(gpushm_unlink(c, "stays"), 0);
	teardown();
}
END_TEST

/* ---- a planned restart without a supervisor ---- */

static void setup_alone(void)
{
	reexec_setup();
	begin(d.socket);
}

static void teardown_alone(void)
{
	sides_end();
	client_teardown();
}

START_TEST(a_stream_goes_on_after_an_exec)
{
	for (int i = 0; i < 3; i++) {
		reexec_restart();
		both_return();
		expect_unharmed(0);
	}
	own->claims[0].claim = stream_claim_word(1, STREAM_CLAIMED);
	reader_dies();
	client_await(own->claims[0].claim == 0);
	reexec_restart();
	producer_dies();
	client_await(head->state == STREAM_ORPHANED);
}
END_TEST

/* A page that was retired is in no journal, and systemd has none: nothing of it is left. */
START_TEST(a_page_that_a_process_keeps_is_not_counted_after_an_exec)
{
	struct gpushm_status before = client_status();

	raw_close_lease(&q, reader);
	ck_assert_uint_gt(client_status().retained_bytes, before.retained_bytes);
	reexec_restart();
	producer_returns();
	ck_assert_uint_eq(client_status().retained_bytes, before.retained_bytes);
	reader = raw_open(&p, "s");
	ck_assert_uint_eq(raw_join(&p, reader, STREAM_EVERY), seat);
	ck_assert_uint_eq(p.reply->joined->generation, 2);
}
END_TEST

int main(void)
{
	TCase *alone = tcase_create("stream_exec"), *lost = tcase_create("stream_lost");
	TCase *tc = tcase_create("stream_restart");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, a_stream_goes_on_after_a_restart);
	tcase_add_test(tc, frames_before_a_restart_are_not_counted_again);
	tcase_add_test(tc, a_stream_goes_on_after_a_stop);
	tcase_add_test(tc, a_readers_death_without_a_daemon_is_found_at_the_start);
	tcase_add_test(tc, a_daemon_that_dies_in_its_start_leaves_what_its_journal_names);
	tcase_add_test(tc, a_producers_death_without_a_daemon_is_found_at_the_start);
	tcase_add_test(tc, a_readers_close_without_a_daemon_is_found_at_its_return);
	tcase_add_test(tc, a_restart_remembers_who_was_dropped_and_who_left);
	tcase_add_test(tc, a_restart_completes_a_drop);
	tcase_add_test(tc, a_restart_completes_a_join);
	tcase_add_test(tc, an_ended_stream_stays_ended_after_a_restart);
	tcase_add_test(tc, each_generation_is_new);
	tcase_add_test(tc, the_supervisor_has_the_pages_that_are_in_use);
	tcase_add_test(tc, a_stream_goes_on_after_a_planned_restart);

	tcase_add_test(lost, a_stream_whose_memory_is_lost_ends);

	tcase_add_checked_fixture(alone, setup_alone, teardown_alone);
	tcase_set_timeout(alone, 100);
	tcase_add_test(alone, a_stream_goes_on_after_an_exec);
	tcase_add_test(alone, a_page_that_a_process_keeps_is_not_counted_after_an_exec);
	return suite_run("stream_restart", tc, lost, alone, NULL);
}
