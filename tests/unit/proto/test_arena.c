/* SPDX-License-Identifier: MIT
 *
 * The arena that frames unpack into: its budget holds against hostile frames, and is enough for
 * every valid one.
 */
#include "proto/base/arena.h"
#include "proto/base/own.h"
#include "proto/limits.h"
#include "tests/lib/fds.h"

#include "gpushm.pb-c.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void *take(struct arena *a, size_t n)
{
	return a->allocator.alloc(a->allocator.allocator_data, n);
}

START_TEST(pieces_are_aligned_and_do_not_overlap)
{
	struct arena a;
	char *last = NULL;

	ck_assert_int_eq(arena_init(&a, 4096), 0);
	for (size_t n = 0; n < 40; n++) {
		char *p = take(&a, n);

		ck_assert_ptr_nonnull(p);
		ck_assert_uint_eq((uintptr_t)p % sizeof(uint64_t), 0);
		if (last)
			ck_assert(p - last >= (ptrdiff_t)n - 1);
		memset(p, 0xee, n);
		last = p;
	}
	arena_done(&a);
}
END_TEST

START_TEST(no_more_than_the_budget_is_handed_out)
{
	struct arena a;

	ck_assert_int_eq(arena_init(&a, 64), 0);
	ck_assert_ptr_null(take(&a, 65));
	ck_assert_ptr_null(take(&a, SIZE_MAX));
	ck_assert_ptr_nonnull(take(&a, 8));
	ck_assert_ptr_null(take(&a, SIZE_MAX));
	ck_assert_ptr_null(take(&a, 57));
	ck_assert_ptr_nonnull(take(&a, 56));
	ck_assert_ptr_null(take(&a, 1));
	ck_assert_uint_eq(a.used, 64);
	arena_done(&a);
}
END_TEST

START_TEST(an_unaligned_budget_is_not_exceeded)
{
	struct arena a;

	ck_assert_int_eq(arena_init(&a, 13), 0);
	ck_assert_ptr_nonnull(take(&a, 1));
	ck_assert_ptr_null(take(&a, 1));
	ck_assert_uint_le(a.used, a.size);
	arena_done(&a);
}
END_TEST

START_TEST(reset_gives_the_budget_back)
{
	struct arena a;
	void *first;

	ck_assert_int_eq(arena_init(&a, 64), 0);
	first = take(&a, 64);
	ck_assert_ptr_null(take(&a, 64));
	arena_reset(&a);
	ck_assert_ptr_eq(take(&a, 64), first);
	arena_done(&a);
}
END_TEST

START_TEST(done_may_be_called_twice)
{
	struct arena a = { 0 };

	arena_done(&a);
	ck_assert_int_eq(arena_init(&a, 64), 0);
	arena_done(&a);
	arena_done(&a);
	ck_assert_ptr_null(take(&a, 1));
}
END_TEST

/* Request { describe { arrays: as many empty ones as fit } }: two bytes each. */
START_TEST(a_hostile_frame_is_refused_within_its_budget)
{
	unsigned char frame[FRAME_MAX] = { 0x1a, 0xfc, 0xff, 0x03 };
	struct arena a;

	for (size_t i = 4; i < sizeof(frame); i += 2)
		frame[i] = 0x12;
	ck_assert_int_eq(arena_init(&a, UNPACK_MAX), 0);
	ck_assert_ptr_null(gpushm__proto__request__unpack(&a.allocator, sizeof(frame), frame));
	ck_assert_uint_le(a.used, UNPACK_MAX);
	arena_done(&a);
}
END_TEST

#define MANY 8192

/* n arrays with the shortest names and shapes that are still different; 0: they don't fit. */
static size_t describe_pack(size_t n, unsigned char *frame)
{
	static Gpushm__Proto__Array arrays[MANY];
	static Gpushm__Proto__Array *pointers[MANY];
	static Gpushm__Proto__Dtype dtype = GPUSHM__PROTO__DTYPE__INIT;
	static char names[MANY][24];
	static uint64_t shape = 8;
	Gpushm__Proto__Describe describe = GPUSHM__PROTO__DESCRIBE__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;

	dtype.has_code = dtype.has_bits = 1;
	dtype.code = 2;
	dtype.bits = 32;
	for (size_t i = 0; i < n; i++) {
		Gpushm__Proto__Array *a = pointers[i] = &arrays[i];

		gpushm__proto__array__init(a);
		snprintf(names[i], sizeof(names[i]), "%zx", i);
		a->has_name = a->has_offset = 1;
		a->name = (ProtobufCBinaryData){ strlen(names[i]), (uint8_t *)names[i] };
		a->dtype = &dtype;
		a->n_shape = 1;
		a->shape = &shape;
		a->offset = i * 32;
	}
	describe.n_arrays = n;
	describe.arrays = pointers;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_DESCRIBE;
	request.describe = &describe;
	if (gpushm__proto__request__get_packed_size(&request) > FRAME_MAX)
		return 0;
	return gpushm__proto__request__pack(&request, frame);
}

START_TEST(a_full_frame_of_small_arrays_fits_the_budget)
{
	unsigned char frame[FRAME_MAX];
	size_t n = 1, len = 0;
	struct arena a;
	Gpushm__Proto__Request *request;

	for (size_t step = MANY / 2; step > 0; step /= 2)
		n += n + step <= MANY && describe_pack(n + step, frame) > 0 ? step : 0;
	len = describe_pack(n, frame);
	ck_assert_uint_gt(len, FRAME_MAX - 64);
	ck_assert_int_eq(arena_init(&a, UNPACK_MAX), 0);
	request = gpushm__proto__request__unpack(&a.allocator, len, frame);
	ck_assert_msg(request != NULL, "%zu arrays in %zu bytes need more than %u", n, len,
		      UNPACK_MAX);
	ck_assert_uint_eq(request->describe->n_arrays, n);
	arena_done(&a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("arena");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, pieces_are_aligned_and_do_not_overlap);
	tcase_add_test(tc, no_more_than_the_budget_is_handed_out);
	tcase_add_test(tc, an_unaligned_budget_is_not_exceeded);
	tcase_add_test(tc, reset_gives_the_budget_back);
	tcase_add_test(tc, done_may_be_called_twice);
	tcase_add_test(tc, a_hostile_frame_is_refused_within_its_budget);
	tcase_add_test(tc, a_full_frame_of_small_arrays_fits_the_budget);
	return suite_run("arena", tc, NULL);
}
