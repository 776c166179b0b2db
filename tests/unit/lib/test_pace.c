/* SPDX-License-Identifier: MIT
 *
 * When a reader expects the next frame.
 */
#include "client/lib/stream/pace.h"
#include "tests/lib/suite.h"

#define SPIN_NS 1000000u /* a spin has a frame that comes in half of this time around its due */
#define PERIOD_NS 20000000u
#define START_NS 1000000000u
#define EARLY_NS (SPIN_NS / 2)

static struct pace p;
static uint64_t seq, at;

static void setup(void)
{
	p = (struct pace){ 0 };
	seq = 1;
	at = START_NS;
	pace_note(&p, seq, at, SPIN_NS);
}

static void frame_after(uint64_t ns)
{
	at += ns;
	pace_note(&p, ++seq, at, SPIN_NS);
}

static void frames(int n)
{
	for (int i = 0; i < n; i++)
		frame_after(PERIOD_NS);
}

static uint64_t wake(void)
{
	return pace_wake(&p, at, SPIN_NS);
}

START_TEST(a_reader_spins_while_it_knows_no_pace)
{
	const struct pace unknown = { 0 };

	ck_assert_uint_eq(pace_wake(&unknown, at, SPIN_NS), 0);
	ck_assert_uint_eq(wake(), 0);
	for (unsigned i = 1; i < 10; i++) {
		frame_after(i * PERIOD_NS);
		ck_assert_uint_eq(wake(), 0);
	}
}
END_TEST

START_TEST(a_reader_sleeps_until_a_frame_is_almost_due)
{
	frames(2);
	ck_assert_uint_eq(wake(), at + PERIOD_NS - EARLY_NS);
	ck_assert_uint_eq(pace_wake(&p, at + PERIOD_NS - EARLY_NS - 1, SPIN_NS),
			  at + PERIOD_NS - EARLY_NS);
}
END_TEST

START_TEST(a_reader_spins_when_a_frame_is_due)
{
	frames(2);
	ck_assert_uint_eq(pace_wake(&p, at + PERIOD_NS - EARLY_NS, SPIN_NS), 0);
	ck_assert_uint_eq(pace_wake(&p, at + 3 * (uint64_t)PERIOD_NS, SPIN_NS), 0);
}
END_TEST

START_TEST(a_reader_wakes_earlier_if_its_sleeps_end_late)
{
	uint64_t early;

	frames(2);
	for (int i = 0; i < 50; i++)
		pace_woke(&p, at, at + 80000, SPIN_NS);
	early = at + PERIOD_NS - wake();
	ck_assert_uint_ge(early, EARLY_NS + 79000);
	ck_assert_uint_le(early, EARLY_NS + 80000);
	/* One that ended far too late must not end the next spin before the frame is due. */
	pace_woke(&p, at, at + PERIOD_NS, SPIN_NS);
	ck_assert_uint_le(at + PERIOD_NS - wake(), early + SPIN_NS / 16);
	early = at + PERIOD_NS - wake();
	pace_woke(&p, at, at - 1, SPIN_NS);
	ck_assert_uint_gt(wake(), at + PERIOD_NS - early);
}
END_TEST

START_TEST(a_reader_of_a_fast_stream_spins)
{
	for (int i = 0; i < 10; i++)
		frame_after(EARLY_NS);
	ck_assert_uint_eq(wake(), 0);
}
END_TEST

START_TEST(a_missing_frame_leaves_the_pace_as_it_is)
{
	frames(2);
	seq += 3;
	frame_after(4 * PERIOD_NS);
	ck_assert_uint_eq(wake(), at + PERIOD_NS - EARLY_NS);
	/* Not made at all. */
	frame_after(2 * PERIOD_NS);
	ck_assert_uint_eq(wake(), at + PERIOD_NS - EARLY_NS);
}
END_TEST

START_TEST(a_late_frame_leaves_the_pace_as_it_is)
{
	frames(2);
	frame_after(PERIOD_NS + SPIN_NS);
	ck_assert_uint_eq(wake(), at + PERIOD_NS - EARLY_NS);
	frame_after(PERIOD_NS - SPIN_NS);
	ck_assert_uint_eq(wake(), at + PERIOD_NS - EARLY_NS);
	frame_after(PERIOD_NS);
	ck_assert_uint_eq(p.agreed, PACE_TRIES);
}
END_TEST

START_TEST(a_new_pace_is_noticed)
{
	frames(2);
	for (unsigned i = 0; i <= PACE_TRIES; i++)
		frame_after(PERIOD_NS / 2);
	ck_assert_uint_eq(wake(), at + PERIOD_NS / 2 - EARLY_NS);
}
END_TEST

START_TEST(jitter_is_averaged_out_of_the_pace)
{
	frames(2);
	for (int i = 0; i < 100; i++)
		frame_after(i % 2 ? PERIOD_NS - 400000 : PERIOD_NS + 400000);
	ck_assert_uint_ge(wake(), at + PERIOD_NS - EARLY_NS - 100000);
	ck_assert_uint_le(wake(), at + PERIOD_NS - EARLY_NS + 100000);
	/* A slow change is followed. */
	for (int i = 0; i < 100; i++)
		frame_after(PERIOD_NS + 100000);
	ck_assert_uint_ge(wake(), at + PERIOD_NS + 100000 - EARLY_NS - 10000);
	/* A source without a pace. */
	for (unsigned i = 1; i < 10; i++)
		frame_after(i * SPIN_NS);
	ck_assert_uint_eq(wake(), 0);
}
END_TEST

START_TEST(a_frame_out_of_order_leaves_the_pace_as_it_is)
{
	frames(2);
	pace_note(&p, seq - 1, at + 5, SPIN_NS);
	pace_note(&p, seq, at + 5, SPIN_NS);
	ck_assert_uint_eq(wake(), at + PERIOD_NS - EARLY_NS);
}
END_TEST

/* The producer's clock may be another one, or its page may hold rubbish. */
START_TEST(a_reader_spins_if_the_producers_clock_is_another)
{
	uint64_t now = at;

	at += 1000 * (uint64_t)PERIOD_NS;
	frames(3);
	ck_assert_uint_eq(pace_wake(&p, now, SPIN_NS), 0);
	at = 5;
	frame_after(0);
	ck_assert_uint_eq(pace_wake(&p, now, SPIN_NS), 0);
	seq = UINT64_MAX - 2;
	for (int i = 0; i < 5; i++) {
		at = i % 2 ? UINT64_MAX : 0;
		frame_after(i);
		pace_wake(&p, now, SPIN_NS);
	}
	seq = 10;
	at = START_NS;
	p = (struct pace){ 0 };
	frames(3);
	ck_assert_uint_eq(wake(), at + PERIOD_NS - EARLY_NS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("pace");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_reader_spins_while_it_knows_no_pace);
	tcase_add_test(tc, a_reader_sleeps_until_a_frame_is_almost_due);
	tcase_add_test(tc, a_reader_spins_when_a_frame_is_due);
	tcase_add_test(tc, a_reader_wakes_earlier_if_its_sleeps_end_late);
	tcase_add_test(tc, a_reader_of_a_fast_stream_spins);
	tcase_add_test(tc, a_missing_frame_leaves_the_pace_as_it_is);
	tcase_add_test(tc, a_late_frame_leaves_the_pace_as_it_is);
	tcase_add_test(tc, a_new_pace_is_noticed);
	tcase_add_test(tc, jitter_is_averaged_out_of_the_pace);
	tcase_add_test(tc, a_frame_out_of_order_leaves_the_pace_as_it_is);
	tcase_add_test(tc, a_reader_spins_if_the_producers_clock_is_another);
	return suite_run("pace", tc, NULL);
}
