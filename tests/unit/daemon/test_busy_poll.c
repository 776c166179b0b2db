/* SPDX-License-Identifier: MIT
 *
 * A loop that polls before it sleeps. The tests ask libuv for the loop's next timeout: 0 is a poll,
 * -1 a sleep until something happens.
 */
#include "daemon/util/busy_poll.h"

#include "tests/lib/suite.h"

#include <check.h>

#define LONG_NS 3600000000000u

static uv_loop_t loop;
static struct busy_poll polling;

static void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	busy_poll_init(&polling, &loop);
	polling.allowed = true;
}

static void teardown(void)
{
	uv_close((uv_handle_t *)&polling.idle, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static bool polls(void)
{
	return uv_is_active((uv_handle_t *)&polling.idle) && uv_backend_timeout(&loop) == 0;
}

START_TEST(a_loop_polls_when_told_to)
{
	ck_assert(!polls());
	busy_poll_for(&polling, LONG_NS);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert(polls());
}
END_TEST

START_TEST(a_loop_stops_polling_when_its_time_is_over)
{
	busy_poll_for(&polling, 1);
	/* uv_run() returns when no handle is active any more. */
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert(!polls());
}
END_TEST

static void miss(void)
{
	busy_poll_for(&polling, 1);
	ck_assert(polls());
	uv_run(&loop, UV_RUN_DEFAULT);
}

START_TEST(a_loop_pauses_polling_after_several_misses)
{
	for (unsigned i = 0; i < SPIN_MISSES; i++)
		miss();
	for (unsigned i = 0; i < SPIN_REST; i++) {
		busy_poll_for(&polling, LONG_NS);
		ck_assert(!polls());
	}
	busy_poll_for(&polling, LONG_NS);
	ck_assert(polls());
}
END_TEST

START_TEST(a_loop_keeps_polling_while_events_come)
{
	for (unsigned i = 0; i < 10 * SPIN_MISSES; i++) {
		for (unsigned j = 0; j < SPIN_MISSES - 1; j++)
			miss();
		busy_poll_for(&polling, LONG_NS);
		ck_assert(polls());
		busy_poll_end(&polling);
		ck_assert(!polls());
	}
}
END_TEST

START_TEST(a_time_of_zero_turns_polling_off)
{
	busy_poll_for(&polling, 0);
	polling.last = uv_hrtime();
	busy_poll_in_burst(&polling, 0);
	ck_assert(!polls());
}
END_TEST

START_TEST(a_loop_sleeps_after_a_single_event)
{
	polling.last = uv_hrtime() - BUSY_POLL_BURST_NS - 1;
	busy_poll_in_burst(&polling, LONG_NS);
	ck_assert(!polls());
	/* Also if the loop was polling for the event before. */
	busy_poll_for(&polling, LONG_NS);
	polling.last = uv_hrtime() - BUSY_POLL_BURST_NS - 1;
	busy_poll_in_burst(&polling, LONG_NS);
	ck_assert(!polls());
}
END_TEST

START_TEST(a_burst_of_events_makes_a_loop_poll)
{
	/* On a busy machine the two calls may be far apart. */
	polling.last = uv_hrtime();
	while (!polls())
		busy_poll_in_burst(&polling, LONG_NS);
}
END_TEST

START_TEST(a_loop_polls_only_where_it_is_allowed)
{
	polling.allowed = false;
	busy_poll_for(&polling, LONG_NS);
	polling.last = uv_hrtime();
	busy_poll_in_burst(&polling, LONG_NS);
	ck_assert(!polls());
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("busy_poll");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_loop_polls_when_told_to);
	tcase_add_test(tc, a_loop_stops_polling_when_its_time_is_over);
	tcase_add_test(tc, a_loop_pauses_polling_after_several_misses);
	tcase_add_test(tc, a_loop_keeps_polling_while_events_come);
	tcase_add_test(tc, a_time_of_zero_turns_polling_off);
	tcase_add_test(tc, a_loop_sleeps_after_a_single_event);
	tcase_add_test(tc, a_burst_of_events_makes_a_loop_poll);
	tcase_add_test(tc, a_loop_polls_only_where_it_is_allowed);
	return suite_run("busy_poll", tc, NULL);
}
