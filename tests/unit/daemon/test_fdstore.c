/* SPDX-License-Identifier: MIT
 *
 * Fd indices: no index is given twice, and those that systemd can keep come first.
 */
#include "daemon/state/fdstore.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdlib.h>

#define MORE 3000u

static struct fdstore s;
static unsigned char *taken;

static void setup(void)
{
	ck_assert_int_eq(fdstore_reset_indices(&s), 0);
	taken = calloc(FD_INDEX_MAX, 1);
}

static void teardown(void)
{
	fdstore_close(&s);
	free(taken);
}

static uint32_t take_for(bool kept)
{
	uint32_t index = fd_indices_take(&s.buffers, kept);

	/* This runs a million times, and each of Check's asserts would write to its parent. */
	if (index >= FD_INDEX_MAX || taken[index])
		ck_abort_msg("%u is no index, or is taken already", index);
	taken[index] = 1;
	return index;
}

static uint32_t take(void)
{
	return take_for(true);
}

static void give(uint32_t index)
{
	taken[index] = 0;
	fd_indices_give(&s.buffers, index);
}

START_TEST(an_index_has_one_holder_at_a_time)
{
	for (uint32_t i = 0; i < FD_INDEX_MAX; i++)
		take();
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
	fd_indices_give(&s.buffers, FD_INDEX_NONE);
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
	for (uint32_t i = 0; i < FD_INDEX_MAX; i += 7)
		give(i);
	for (uint32_t i = 0; i < FD_INDEX_MAX; i += 7)
		take();
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
}
END_TEST

START_TEST(indices_that_systemd_can_keep_are_given_first)
{
	for (uint32_t i = 0; i < FD_INDEX_KEPT; i++)
		ck_assert_uint_lt(take(), FD_INDEX_KEPT);
	for (uint32_t i = 0; i < MORE; i++)
		ck_assert_uint_ge(take(), FD_INDEX_KEPT);
	give(FD_INDEX_KEPT + 5);
	give(17);
	ck_assert_uint_eq(take(), 17);
	ck_assert_uint_eq(take(), FD_INDEX_KEPT + 5);
}
END_TEST

START_TEST(an_unkept_buffer_leaves_the_kept_indices_to_others)
{
	for (uint32_t i = 0; i < MORE; i++)
		ck_assert_uint_ge(take_for(false), FD_INDEX_KEPT);
	give(FD_INDEX_KEPT + 5);
	ck_assert_uint_eq(take_for(false), FD_INDEX_KEPT + 5);
	ck_assert_uint_eq(take(), 0);
}
END_TEST

START_TEST(an_index_marked_as_in_use_is_not_given)
{
	static const uint32_t marked[] = { 3, FD_INDEX_KEPT - 1, FD_INDEX_KEPT + 4, 0 };

	for (unsigned i = 0; i < sizeof(marked) / sizeof(*marked); i++) {
		fd_indices_mark(&s.buffers, marked[i]);
		taken[marked[i]] = 1;
	}
	fd_indices_mark(&s.buffers, FD_INDEX_MAX); /* as an invalid journal may have it */
	fd_indices_mark(&s.buffers, FD_INDEX_NONE);
	for (uint32_t i = 0; i < FD_INDEX_MAX - 4; i++)
		take();
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("fdstore");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, an_index_has_one_holder_at_a_time);
	tcase_add_test(t, indices_that_systemd_can_keep_are_given_first);
	tcase_add_test(t, an_unkept_buffer_leaves_the_kept_indices_to_others);
	tcase_add_test(t, an_index_marked_as_in_use_is_not_given);
	return suite_run("fdstore", t, NULL);
}
