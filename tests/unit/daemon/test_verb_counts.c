/* SPDX-License-Identifier: MIT
 *
 * The buckets of times: each time is in exactly one, and a bound belongs to its own.
 */
#include "daemon/util/verb_counts.h"
#include "tests/lib/suite.h"

#include <string.h>

static struct verb_counts v;

static void setup(void)
{
	memset(&v, 0, sizeof(v));
}

START_TEST(a_bound_belongs_to_its_own_bucket)
{
	for (unsigned i = 0; i < LATENCY_BOUNDS; i++) {
		setup();
		verb_counts_took(&v, latency_bounds[i]);
		ck_assert_uint_eq(v.buckets[i], 1);
		verb_counts_took(&v, latency_bounds[i] + 1);
		ck_assert_uint_eq(v.buckets[i + 1], 1);
		ck_assert_uint_eq(v.ns, 2 * latency_bounds[i] + 1);
	}
}
END_TEST

START_TEST(a_time_beyond_all_bounds_counts_in_the_last_bucket)
{
	verb_counts_took(&v, UINT64_MAX);
	verb_counts_took(&v, 0);
	ck_assert_uint_eq(v.buckets[LATENCY_BOUNDS], 1);
	ck_assert_uint_eq(v.buckets[0], 1);
	ck_assert_uint_eq(v.waits, 0);
}
END_TEST

START_TEST(the_bounds_rise)
{
	ck_assert_uint_eq(latency_bounds[0], 1000);
	ck_assert_uint_eq(latency_bounds[LATENCY_BOUNDS - 1], 10000000000ull);
	for (unsigned i = 1; i < LATENCY_BOUNDS; i++)
		ck_assert_uint_gt(latency_bounds[i], latency_bounds[i - 1]);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("verb_counts");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_bound_belongs_to_its_own_bucket);
	tcase_add_test(tc, a_time_beyond_all_bounds_counts_in_the_last_bucket);
	tcase_add_test(tc, the_bounds_rise);
	return suite_run("verb_counts", tc, NULL);
}
