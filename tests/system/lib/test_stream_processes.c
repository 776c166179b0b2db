/* SPDX-License-Identifier: MIT
 *
 * A stream's producer and readers as processes of their own, over a daemon that may die: what the
 * others see when one of them dies, comes or goes, is slow, or writes rubbish. Contents and order
 * of all frames are checked (tests/lib/streamer.h).
 */
#include "proto/base/own.h"
#include "tests/lib/hostile_reader.h"
#include "tests/lib/suite.h"
#include "tests/system/lib/stream_board.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define READERS 6

static struct role_process readers[READERS];

/* The words that follow are the role's; NULL at the end. */
static __attribute__((sentinel)) void start(struct role_process *p, const char *role, ...)
{
	const char *args[12] = { k.socket, "s", path };
	va_list list;

	va_start(list, role);
	for (int i = 3; i < 11 && (args[i] = va_arg(list, const char *)); i++)
		;
	va_end(list);
	streamer_start(p, role, args);
}

static void kill_now(struct role_process *p)
{
	ck_assert_int_eq(kill(p->pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(p)));
}

static void await_line(struct role_process *p, const char *wanted)
{
	char line[16];

	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, wanted);
}

/* readers[i] takes frames, and holds the one after which it stops. */
static void start_holder(int i, const char *follow, const char *stop)
{
	char id[8];

	snprintf(id, sizeof(id), "id=%d", i);
	start(&readers[i], "reader", id, follow, stop, NULL);
	await_line(&readers[i], "holds");
}

static void readers_die_with_a_frame(const char *follow, int n)
{
	while (n-- > 0) {
		start_holder(1, follow, "stop=3");
		kill_now(&readers[1]);
	}
}

static void finish_readers(int n)
{
	for (int i = 0; i < n; i++)
		role_finish(&readers[i]);
}

static void expect_clean(void)
{
	ck_assert_uint_eq(board->torn, 0);
	ck_assert_uint_eq(board->disorder, 0);
	ck_assert_uint_eq(board->stale, 0);
	ck_assert_uint_eq(board->broken, 0);
	ck_assert_uint_eq(board->dropped, 0);
}

/* The stream ends, and n readers have read all of it. */
static void finish(int n)
{
	role_finish(&producer);
	client_await(board->ended == (uint64_t)n);
	finish_readers(n);
	expect_clean();
}

/* Waits until the producer has published so many more. */
static void await_frames(uint64_t n)
{
	uint64_t from = board->published;

	client_await(board->published >= from + n);
}

/* What the daemon says of the stream; the caller frees it with gpushm_free(). */
static struct gpushm_stream_info **stream_info(void)
{
	struct gpushm_stream_info **all = NULL;
	size_t n = 0;

	ck_assert_msg(gpushm_streams(c, "s", &all, &n) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(n, 1);
	return all;
}

static size_t readers_of_stream(void)
{
	struct gpushm_stream_info **info = stream_info();
	size_t n = info[0]->n_readers;

	gpushm_free(info);
	return n;
}

/* ---- three ways to follow ---- */

START_TEST(every_gets_all_frames_and_latest_skips_some)
{
	start(&producer, "producer", "slots=6", "delay=50", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	start(&readers[1], "reader", "id=1", "follow=every", "held=2", "hold=200", NULL);
	start(&readers[2], "reader", "id=2", "follow=latest", NULL);
	start(&readers[3], "reader", "id=3", "follow=latest", "hold=3000", NULL);
	await_frames(1000);
	finish(4);
	ck_assert_uint_ge(board->taken[0], 1000);
	ck_assert_uint_gt(board->taken[2], 0);
	ck_assert_uint_gt(board->taken[3], 0);
	ck_assert_uint_lt(board->taken[3], board->taken[2]);
}
END_TEST

static void expect_done(uint64_t from, uint64_t to, unsigned least, unsigned most)
{
	for (uint64_t seq = from; seq <= to; seq++)
		ck_assert_msg(board->done[seq] >= least && board->done[seq] <= most,
			      "frame %lu was done %u times", (unsigned long)seq, board->done[seq]);
}

/* The group's first frame is the first one after its first member has joined. */
static uint64_t first_done(void)
{
	uint64_t seq = 1;

	while (board->done[seq] == 0)
		seq++;
	return seq;
}

START_TEST(share_does_each_frame_once)
{
	start(&producer, "producer", "slots=8", "count=2000", "keep_queue=1", "before=3", NULL);
	start(&readers[0], "reader", "id=0", "follow=share", NULL);
	start(&readers[1], "reader", "id=1", "follow=share", "held=2", NULL);
	start(&readers[2], "reader", "id=2", "follow=share", "hold=500", NULL);
	client_await(board->ended == 3);
	role_finish(&producer);
	finish_readers(3);
	expect_clean();
	ck_assert_uint_eq(board->published, 2000);
	expect_done(1, 2000, 1, 1);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_gt(board->taken[i], 0);
}
END_TEST

START_TEST(joins_and_leaves_disturb_nobody)
{
	start(&producer, "producer", "slots=6", "delay=20", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	for (int i = 0; i < 12; i++) {
		struct role_process *r = &readers[1 + i % 4];

		if (i >= 4)
			role_finish(r);
		start(r, "reader", i % 3 ? "follow=every" : "follow=share", "id=1", "held=2", NULL);
		await_frames(20);
	}
	role_finish(&producer);
	finish_readers(5);
	expect_clean();
	ck_assert_uint_ge(board->taken[0], 240);
}
END_TEST

/* ---- deaths of readers ---- */

START_TEST(a_dead_readers_frame_is_given_back)
{
	start(&producer, "producer", "slots=3", "limit=600000", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	for (int i = 0; i < 5; i++) {
		readers_die_with_a_frame("follow=every", 1);
		await_frames(50);
	}
	finish(1);
}
END_TEST

START_TEST(a_dead_members_frame_is_done_by_another)
{
	start(&producer, "producer", "slots=8", "delay=100", NULL);
	start(&readers[0], "reader", "id=0", "follow=share", NULL);
	readers_die_with_a_frame("follow=share", 5);
	finish(1);
	expect_done(first_done(), board->published, 1, 1);
}
END_TEST

static uint64_t lost_and_not_redone(void)
{
	struct gpushm_stream_info **info = stream_info();
	uint64_t lost = info[0]->lost;

	ck_assert_uint_eq(info[0]->redone, 0);
	gpushm_free(info);
	return lost;
}

START_TEST(at_most_once_gives_no_frame_twice)
{
	uint64_t missing = 0;

	start(&producer, "producer", "slots=8", "delay=100", "once=1", NULL);
	start(&readers[0], "reader", "id=0", "follow=share", NULL);
	readers_die_with_a_frame("follow=share", 5);
	client_await(lost_and_not_redone() == 5);
	finish(1);
	for (uint64_t seq = first_done(); seq <= board->published; seq++) {
		ck_assert_uint_le(board->done[seq], 1);
		missing += board->done[seq] == 0;
	}
	ck_assert_uint_eq(missing, 5);
}
END_TEST

/* ---- deaths of the producer ---- */

/* Readers have learnt of a death so often then. */
static void kill_producer(uint64_t orphaned)
{
	kill_now(&producer);
	client_await(board->orphaned == orphaned);
}

START_TEST(a_successor_continues_the_sequence_of_a_dead_producer)
{
	start(&producer, "producer", "slots=4", "count=5", "begun=1", NULL);
	/* It joins late: nothing is lost for it. */
	start(&readers[1], "reader", "id=1", "follow=latest", NULL);
	await_line(&producer, "begun");
	client_await(board->taken[1] > 0);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	kill_producer(2);
	start(&producer, "producer", "slots=4", "adopt=1", "delay=100", NULL);
	await_frames(100);
	finish(2);
	ck_assert_uint_eq(board->producers, 2);
	ck_assert_uint_eq(board->published, board->taken[0] + 5);
	for (uint64_t seq = 1; seq <= board->published; seq++)
		ck_assert_uint_eq(board->was_published[seq], 1);
}
END_TEST

/* The frames that it has published are there for everybody. */
START_TEST(the_frames_of_a_dead_producer_are_read)
{
	start(&producer, "producer", "slots=8", "delay=200", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", "hold=1000", NULL);
	for (int i = 0; i < 5; i++) {
		await_frames(20);
		kill_producer((uint64_t)i + 1);
		start(&producer, "producer", "slots=8", "delay=200", "adopt=1", NULL);
	}
	await_frames(20);
	finish(1);
	expect_done(first_done(), board->published, 1, 1);
}
END_TEST

/* It can't open the stream's files, at first none of them. */
START_TEST(a_producer_that_cannot_begin_does_not_end_the_stream)
{
	struct gpushm_stream_spec spec = { .slots = 4, .flags = GPUSHM_ADOPT };
	struct gpushm_stream *s = NULL;
	struct rlimit before;
	int failed = 0, error = -EMFILE;

	start(&producer, "producer", "slots=4", "delay=1000", NULL);
	start(&readers[0], "reader", "id=0", "follow=latest", NULL);
	client_await(board->taken[0] > 0);
	kill_producer(1);
	getrlimit(RLIMIT_NOFILE, &before);
	for (rlim_t n = 3; error == -EMFILE && n < before.rlim_cur; n++) {
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ n, before.rlim_max });
		error = streamer_create(c, "s", &spec, &s);
		setrlimit(RLIMIT_NOFILE, &before);
		failed += error < 0;
	}
	ck_assert_msg(error == 0, "%s", gpushm_error());
	ck_assert_int_gt(failed, 0);
	ck_assert_uint_eq(board->ended, 0);
	s = gpushm_stream_close(s);
	client_await(board->ended == 1);
	finish_readers(1);
	expect_clean();
}
END_TEST

START_TEST(a_stream_outlives_a_producer_and_a_reader_that_die_together)
{
	start(&producer, "producer", "slots=3", "limit=600000", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	for (int i = 0; i < 5; i++) {
		start_holder(1, "follow=every", "stop=3");
		kill(producer.pid, SIGKILL);
		kill_now(&readers[1]);
		ck_assert(WIFSIGNALED(role_wait(&producer)));
		start(&producer, "producer", "slots=3", "limit=600000", "adopt=1", NULL);
		await_frames(50);
	}
	finish(1);
}
END_TEST

/* ---- deaths of the daemon ---- */

START_TEST(frames_flow_without_a_daemon)
{
	start(&producer, "producer", "slots=4", "delay=50", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	start(&readers[1], "reader", "id=1", "follow=latest", NULL);
	/* The producer fetches the pages of readers that have joined. */
	await_frames(10);
	for (int i = 0; i < 3; i++) {
		supervisor_end(&k, SIGKILL);
		await_frames(200);
		supervisor_start(&k);
		await_frames(200);
		start(&readers[2], "reader", "id=2", "follow=every", NULL);
		await_frames(50);
		role_finish(&readers[2]);
		/* What a reader held is in the way until a daemon sees that it has gone. */
		client_await(readers_of_stream() == 2);
	}
	finish(2);
	ck_assert_uint_gt(board->taken[2], 0);
}
END_TEST

/* The producer and a reader spin in each wait to its end, the other readers for a short time. */
START_TEST(a_spin_notices_deaths_and_the_end)
{
	start(&producer, "producer", "slots=4", "delay=1000", "limit=600000", "spin=1000000", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", "spin=200", NULL);
	start(&readers[1], "reader", "id=1", "follow=latest", "spin=1000000", NULL);
	start(&readers[2], "reader", "id=2", "follow=every", "spin=200", "stop=3", NULL);
	await_line(&readers[2], "holds");
	kill_now(&readers[2]);
	await_frames(50);
	supervisor_end(&k, SIGKILL);
	await_frames(50);
	supervisor_start(&k);
	await_frames(50);
	kill_producer(2);
	start(&producer, "producer", "slots=4", "delay=1000", "spin=200", "adopt=1", NULL);
	await_frames(50);
	finish(2);
}
END_TEST

START_TEST(a_death_without_a_daemon_is_found_later)
{
	start(&producer, "producer", "slots=3", "limit=600000", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	start_holder(1, "follow=every", "stop=3");
	supervisor_end(&k, SIGKILL);
	kill_now(&readers[1]);
	supervisor_start(&k);
	await_frames(50);
	supervisor_end(&k, SIGKILL);
	kill_now(&producer);
	supervisor_start(&k);
	client_await(board->orphaned == 1);
	start(&producer, "producer", "slots=3", "adopt=1", NULL);
	await_frames(50);
	finish(1);
}
END_TEST

/* Nothing that it asked of the daemon before made it notice the restart. */
START_TEST(an_end_after_a_restart_is_no_death)
{
	for (uint64_t i = 0; i < 2; i++) {
		start(&producer, "producer", "slots=4", "delay=50", "keep=1", NULL);
		start(&readers[0], "reader", "id=0", "follow=every", NULL);
		await_frames(10);
		supervisor_end(&k, i ? SIGKILL : SIGTERM);
		if (i)
			close_fd(&producer.to);
		supervisor_start(&k);
		role_finish(&producer);
		client_await(board->ended + board->orphaned == i + 1);
		ck_assert_uint_eq(board->orphaned, 0);
		finish_readers(1);
		ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
	}
	expect_clean();
}
END_TEST

/* ---- slow and bad readers ---- */

START_TEST(a_reader_that_never_releases_is_named_and_dropped)
{
	struct gpushm_stream_info **info;

	hostile_reader_stays_away("readers are counted");
	start(&producer, "producer", "slots=3", "limit=1000", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	start_holder(1, "follow=every", "stop=2");
	info = stream_info();
	ck_assert_uint_eq(info[0]->n_readers, 2);
	ck_assert_int_eq(info[0]->readers[1]->pid, readers[1].pid);
	ck_assert_uint_eq(info[0]->readers[1]->held, 1);
	ck_assert_uint_ne(info[0]->readers[1]->oldest, 0);
	gpushm_free(info);
	await_frames(50);
	info = stream_info();
	ck_assert_uint_eq(info[0]->dropped, 1);
	ck_assert_int_eq(info[0]->readers[1]->dropped, 1);
	ck_assert_uint_ge(info[0]->stalls, 1);
	gpushm_free(info);
	/* It learns of it when it goes on. */
	role_finish(&readers[1]);
	role_finish(&producer);
	finish_readers(1);
	ck_assert_uint_eq(board->stale, 1);
	ck_assert_uint_eq(board->torn, 0);
	ck_assert_uint_eq(board->disorder, 0);
}
END_TEST

START_TEST(a_reader_that_scribbles_hurts_nobody)
{
	start(&producer, "producer", "slots=6", "limit=300", NULL);
	start(&readers[0], "reader", "id=0", "follow=every", NULL);
	start(&readers[1], "reader", "id=1", "follow=latest", NULL);
	for (int i = 0; i < 3; i++) {
		start(&readers[2], "reader", "id=2", i == 1 ? "follow=latest" : "follow=every",
		      "scribble=1", NULL);
		start(&readers[3], "reader", "id=3", "follow=share", NULL);
		client_await(board->taken[2] > (uint64_t)i);
		await_frames(500);
		/* It may have been dropped and have ended by itself. */
		kill(readers[2].pid, SIGKILL);
		role_wait(&readers[2]);
		await_frames(100);
		role_finish(&readers[3]);
	}
	role_finish(&producer);
	finish_readers(2);
	ck_assert_uint_eq(board->torn, 0);
	ck_assert_uint_eq(board->disorder, 0);
	ck_assert_uint_ge(board->taken[0], 1500);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("stream_processes");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, board_setup, board_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, every_gets_all_frames_and_latest_skips_some);
	tcase_add_test(t, share_does_each_frame_once);
	tcase_add_test(t, joins_and_leaves_disturb_nobody);
	tcase_add_test(t, a_dead_readers_frame_is_given_back);
	tcase_add_test(t, a_dead_members_frame_is_done_by_another);
	tcase_add_test(t, at_most_once_gives_no_frame_twice);
	tcase_add_test(t, a_successor_continues_the_sequence_of_a_dead_producer);
	tcase_add_test(t, the_frames_of_a_dead_producer_are_read);
	tcase_add_test(t, a_producer_that_cannot_begin_does_not_end_the_stream);
	tcase_add_test(t, a_stream_outlives_a_producer_and_a_reader_that_die_together);
	tcase_add_test(t, frames_flow_without_a_daemon);
	tcase_add_test(t, a_spin_notices_deaths_and_the_end);
	tcase_add_test(t, a_death_without_a_daemon_is_found_later);
	tcase_add_test(t, an_end_after_a_restart_is_no_death);
	tcase_add_test(t, a_reader_that_never_releases_is_named_and_dropped);
	tcase_add_test(t, a_reader_that_scribbles_hurts_nobody);
	return suite_run("stream_processes", t, NULL);
}
