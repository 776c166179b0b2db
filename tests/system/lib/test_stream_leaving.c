/* SPDX-License-Identifier: MIT
 *
 * A member of a `share` group has gone, its process perhaps not, and the stream has no producer any
 * more. What the member holds may come back to the group, so the others must not take the end of
 * the stream for their own before the daemon knows. The member is the reader of
 * stream_sides.h; the other member is the library.
 */
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "tests/lib/kept.h"
#include "tests/lib/stream_sides.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static struct stream_reader_page *own;
static struct stream_group_page *group;
static struct gpushm_stream *r;
static uint32_t seat;

/* Frame 1 is the member's, and there is no other. */
static void take_frame(void)
{
	raw_publish_frame(head, 0, 1, true);
	own->claims[0].claim = stream_claim_word(1, STREAM_CLAIMED);
	group->owner[0] = stream_owner(1, seat);
	group->next = 2;
}

static void begin(uint32_t delivery)
{
	producer = raw_create(&p, "s", RAW_SLOTS * RAW_SLOT_BYTES);
	ck_assert_int_eq(raw_call(&p, REQUEST(STREAM, Stream, stream, SET(lease, producer),
					      SET(slots, RAW_SLOTS), SET(readers, RAW_READERS),
					      SET(slot_bytes, RAW_SLOT_BYTES),
					      SET(delivery, delivery))),
			 0);
	raw_publish(&p, producer, GPUSHM__PROTO__STATE__STATE_SHARED);
	reader = raw_open(&q, "s");
	head = raw_map_page(&p, producer, STREAM_PAGE_HEAD);
	seat = raw_join(&q, reader, STREAM_SHARE);
	own = raw_map_page(&q, reader, STREAM_PAGE_READER + seat);
	group = raw_map_page(&q, reader, STREAM_PAGE_GROUP);
	ck_assert_msg(gpushm_stream_open(c, "s", GPUSHM_SHARE, 1, 0, NULL, &r) == 0, "%s",
		      gpushm_error());
}

static void setup(void)
{
	kept_setup();
	sides_start(k.socket);
	begin(STREAM_AT_LEAST_ONCE);
}

static void teardown(void)
{
	r = gpushm_stream_close(r);
	sides_end();
	client_await(supervisor_count(&k, 's') == 0);
	kept_teardown();
}

static void expect(int wanted, uint64_t timeout_ms)
{
	struct gpushm_frame *f = NULL;
	int e = gpushm_frame_next(r, GPUSHM_ON_HOST, timeout_ms, &f);

	ck_assert_msg(e == wanted, "%d and not %d: %s", e, wanted, gpushm_error());
	if (e < 0)
		return;
	ck_assert_uint_eq(gpushm_frame_seq(f), 1);
	ck_assert_int_eq(gpushm_frame_release(f, GPUSHM_ON_HOST), 0);
}

/* The stream ends when the member has hung up, and lives. */
static void end_behind_the_member(void)
{
	take_frame();
	raw_close(&q);
	ck_assert_int_eq(raw_close_lease(&p, producer), 0);
}

/* The member's process ends, and its frame comes back before the end. */
static void expect_frame_and(int end_of_stream)
{
	expect(-ETIMEDOUT, 50);
	reader_dies();
	expect(0, 60000);
	expect(end_of_stream, 60000);
	ck_assert_uint_eq(head->leaving, 0);
}

/* ---- the end of the stream ---- */

START_TEST(a_dead_members_frame_comes_before_the_end)
{
	end_behind_the_member();
	ck_assert_uint_eq(head->state, STREAM_ENDED);
	expect_frame_and(-EPIPE);
}
END_TEST

START_TEST(a_dead_members_frame_comes_before_the_producers_death)
{
	take_frame();
	raw_close(&q);
	producer_dies();
	client_await(head->state == STREAM_ORPHANED);
	expect_frame_and(-EOWNERDEAD);
}
END_TEST

/* Stops the daemon. False: this process may not trace it. */
static bool trace(void)
{
	if (ptrace(PTRACE_SEIZE, k.pid, NULL, (void *)PTRACE_O_TRACESYSGOOD) < 0)
		return false;
	ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, k.pid, NULL, NULL), 0);
	ck_assert_int_eq(waitpid(k.pid, NULL, __WALL), k.pid);
	return true;
}

/* Up to the first system call behind the end of the stream: without one the daemon can't notice
 * that the member has gone. */
static uint64_t trace_to_the_end(void)
{
	uint64_t leaving;
	long signal = 0;

	while (head->state == STREAM_RUNNING) {
		int status = 0;

		ck_assert_int_eq(ptrace(PTRACE_SYSCALL, k.pid, NULL, (void *)signal), 0);
		ck_assert_int_eq(waitpid(k.pid, &status, __WALL), k.pid);
		ck_assert(WIFSTOPPED(status));
		signal =
			status >> 16 || WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
	}
	leaving = head->leaving;
	ck_assert_int_eq(ptrace(PTRACE_DETACH, k.pid, NULL, NULL), 0);
	return leaving;
}

/* The daemon reads a request or two of a connection, and then one of the next. */
START_TEST(the_end_knows_of_a_hangup_that_is_not_read_yet)
{
	take_frame();
	if (!trace()) {
		puts("skipped: the daemon can't be traced");
		return;
	}
	for (int i = 0; i < 250; i++)
		ck_assert_int_eq(raw_request(&q, REQUEST(CLOSE, Close, close, SET(lease, 7),
							 SET(quiet, true))),
				 0);
	raw_close(&q);
	raw_request(&p, REQUEST(CLOSE, Close, close, SET(lease, producer)));
	ck_assert_uint_eq(trace_to_the_end(), 1u << seat);
	ck_assert_int_eq(raw_receive(&p), 0);
	expect_frame_and(-EPIPE);
}
END_TEST

/* Nobody can know that a member that still runs is going to die; but who is still there when it
 * does gets its frame. */
START_TEST(the_frame_of_a_member_that_dies_behind_the_end_comes)
{
	take_frame();
	ck_assert_int_eq(raw_close_lease(&p, producer), 0);
	ck_assert_uint_eq(head->leaving, 0);
	expect(-EPIPE, 60000);
	raw_close(&q);
	client_await(head->leaving == 1u << seat);
	expect_frame_and(-EPIPE);
}
END_TEST

static void *await_end(void *arg)
{
	expect(-EPIPE, 60000);
	return NULL;
}

START_TEST(a_member_that_comes_back_wakes_the_others)
{
	pthread_t waiting;

	end_behind_the_member();
	expect(-ETIMEDOUT, 20);
	pthread_create(&waiting, NULL, await_end, NULL);
	reader_returns();
	ck_assert_uint_eq(head->leaving, 0);
	pthread_join(waiting, NULL);
}
END_TEST

START_TEST(a_group_does_not_wait_for_a_member_that_holds_nothing)
{
	raw_close(&q);
	ck_assert_int_eq(raw_close_lease(&p, producer), 0);
	expect(-EPIPE, 0);
}
END_TEST

START_TEST(a_group_does_not_wait_for_a_frame_that_nobody_gets)
{
	r = gpushm_stream_close(r);
	raw_close_lease(&q, reader);
	raw_close_lease(&p, producer);
	gpushm_unlink(c, "s");
	begin(STREAM_AT_MOST_ONCE);
	end_behind_the_member();
	expect(-EPIPE, 0);
}
END_TEST

/* ---- the daemon's death ---- */

/* A member that has not come back may take frames, and release them. */
START_TEST(a_group_waits_for_what_an_absent_member_holds)
{
	kept_crash();
	take_frame();
	producer_returns();
	ck_assert_int_eq(raw_close_lease(&p, producer), 0);
	ck_assert_uint_eq(head->leaving, 1u << seat);
	expect(-ETIMEDOUT, 20);
	own->claims[0].claim = 0;
	expect(-EPIPE, 60000);
}
END_TEST

START_TEST(a_successor_knows_who_leaves)
{
	end_behind_the_member();
	kept_crash();
	expect_frame_and(-EPIPE);
}
END_TEST

static void *await_frame(void *arg)
{
	expect(0, 60000);
	expect(-EOWNERDEAD, 60000);
	return NULL;
}

START_TEST(deaths_without_a_daemon_are_told_in_order)
{
	pthread_t waiting;

	take_frame();
	pthread_create(&waiting, NULL, await_frame, NULL);
	supervisor_end(&k, SIGKILL);
	reader_dies();
	producer_dies();
	supervisor_start(&k);
	pthread_join(waiting, NULL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stream_leaving");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_dead_members_frame_comes_before_the_end);
	tcase_add_test(tc, a_dead_members_frame_comes_before_the_producers_death);
	tcase_add_test(tc, the_end_knows_of_a_hangup_that_is_not_read_yet);
	tcase_add_test(tc, the_frame_of_a_member_that_dies_behind_the_end_comes);
	tcase_add_test(tc, a_member_that_comes_back_wakes_the_others);
	tcase_add_test(tc, a_group_does_not_wait_for_a_member_that_holds_nothing);
	tcase_add_test(tc, a_group_does_not_wait_for_a_frame_that_nobody_gets);
	tcase_add_test(tc, a_group_waits_for_what_an_absent_member_holds);
	tcase_add_test(tc, a_successor_knows_who_leaves);
	tcase_add_test(tc, deaths_without_a_daemon_are_told_in_order);
	return suite_run("stream_leaving", tc, NULL);
}
