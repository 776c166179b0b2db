/* SPDX-License-Identifier: MIT
 *
 * Shapes and strides: products that must not wrap, and their results if they do not.
 */
#include "proto/base/own.h"
#include "proto/table_image.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

#define TOP63 ((uint64_t)INT64_MAX)

static const struct dtype f32 = { DTYPE_FLOAT, 32, 1, 0 };
static const struct dtype u8 = { DTYPE_UINT, 8, 1, 0 };
static const struct dtype f4 = { DTYPE_FLOAT4_E2M1FN, 4, 1, 0 };
static const struct dtype big = { DTYPE_RECORD, 0, 1, UINT32_MAX };

START_TEST(a_number_of_elements_is_exact_or_an_overflow)
{
	static const struct {
		uint32_t ndim;
		uint64_t shape[3];
		int r;
		uint64_t n;
	} cases[] = {
		{ 0, { 0 }, 0, 1 },
		{ 1, { 7 }, 0, 7 },
		{ 3, { 2, 3, 4 }, 0, 24 },
		{ 3, { 2, 0, 4 }, 0, 0 },
		{ 1, { INT64_MAX }, 0, INT64_MAX },
		{ 3, { INT64_MAX, 0, INT64_MAX }, 0, 0 },
		{ 3, { INT64_MAX, 1, 1 }, 0, INT64_MAX },
		{ 1, { TOP63 + 1 }, -EOVERFLOW, 0 },
		{ 2, { 0, TOP63 + 1 }, -EOVERFLOW, 0 },
		{ 2, { TOP63, 2 }, -EOVERFLOW, 0 },
		{ 2, { 1ull << 32, 1ull << 32 }, -EOVERFLOW, 0 },
		{ 2, { 1ull << 31, 1ull << 32 }, -EOVERFLOW, 0 },
		{ 2, { 1ull << 31, 1ull << 31 }, 0, 1ull << 62 },
		{ 3, { 1ull << 32, 1ull << 32, 3 }, -EOVERFLOW, 0 },
	};

	for (size_t i = 0; i < array_size(cases); i++) {
		uint64_t n = 0;

		ck_assert_int_eq(table_elements(cases[i].ndim, cases[i].shape, &n), cases[i].r);
		ck_assert_uint_eq(n, cases[i].n);
	}
}
END_TEST

START_TEST(strides_are_numpys)
{
	static const struct {
		struct dtype t;
		uint64_t shape[3];
		int64_t strides[3];
	} cases[] = {
		{ { DTYPE_FLOAT, 32, 1, 0 }, { 2, 3, 4 }, { 48, 16, 4 } },
		{ { DTYPE_UINT, 8, 1, 0 }, { 1, 1, 1 }, { 1, 1, 1 } },
		{ { DTYPE_FLOAT, 64, 1, 0 }, { 3, 0, 4 }, { 32, 32, 8 } },
		{ { DTYPE_FLOAT, 64, 1, 0 }, { 0, 3, 4 }, { 96, 32, 8 } },
		{ { DTYPE_FLOAT, 32, 4, 0 }, { 2, 3, 4 }, { 192, 64, 16 } },
		{ { DTYPE_FLOAT4_E2M1FN, 4, 1, 0 }, { 2, 3, 4 }, { 0, 0, 0 } },
		{ { DTYPE_FLOAT4_E2M1FN, 4, 2, 0 }, { 2, 3, 4 }, { 12, 4, 1 } },
		{ { DTYPE_RECORD, 0, 1, 12 }, { 2, 3, 4 }, { 144, 48, 12 } },
	};
	int64_t strides[3];

	for (size_t i = 0; i < array_size(cases); i++) {
		ck_assert_int_eq(table_c_strides(cases[i].t, 3, cases[i].shape, strides), 0);
		ck_assert_mem_eq(strides, cases[i].strides, sizeof(strides));
	}
}
END_TEST

START_TEST(strides_are_exact_or_an_overflow)
{
	int64_t strides[3];

	ck_assert_int_eq(table_c_strides(u8, 2, (uint64_t[]){ 1, TOP63 }, strides), 0);
	ck_assert_int_eq(strides[0], INT64_MAX);
	ck_assert_int_eq(table_c_strides(u8, 2, (uint64_t[]){ 1, TOP63 + 1 }, strides), -EOVERFLOW);
	ck_assert_int_eq(table_c_strides(f32, 2, (uint64_t[]){ 1, TOP63 }, strides), -EOVERFLOW);
	ck_assert_int_eq(table_c_strides(big, 3, (uint64_t[]){ 1, 65536, 65536 }, strides),
			 -EOVERFLOW);
	/* No stride depends on the first dimension. */
	ck_assert_int_eq(table_c_strides(f32, 1, (uint64_t[]){ TOP63 }, strides), 0);
}
END_TEST

static void span_is(struct table_array a, uint64_t before, uint64_t bytes)
{
	uint64_t b = 1, n = 1;

	ck_assert_int_eq(table_span(&a, &b, &n), 0);
	ck_assert_uint_eq(b, before);
	ck_assert_uint_eq(n, bytes);
}

#define STRIDES(...) .has_strides = true, .strides = { __VA_ARGS__ }

START_TEST(a_span_covers_every_byte)
{
	span_is((struct table_array){ .dtype = f32 }, 0, 4);
	span_is((struct table_array){ .dtype = f32, .ndim = 2, .shape = { 3, 5 } }, 0, 60);
	span_is((struct table_array){ .dtype = f32, .ndim = 2, .shape = { 3, 0 } }, 0, 0);
	span_is((struct table_array){ .dtype = f32, .ndim = 1, .shape = { 3 }, STRIDES(0) }, 0, 4);
	span_is((struct table_array){ .dtype = f32, .ndim = 1, .shape = { 3 }, STRIDES(-8) }, 16,
		20);
	span_is((struct table_array){ .dtype = f32,
				      .ndim = 2,
				      .shape = { 3, 2 },
				      STRIDES(-8, 100) },
		16, 120);
	span_is((struct table_array){ .dtype = f32,
				      .ndim = 2,
				      .shape = { 0, 2 },
				      STRIDES(INT64_MIN, 100) },
		0, 0);
	span_is((struct table_array){ .dtype = u8, .ndim = 1, .shape = { 2 }, STRIDES(INT64_MIN) },
		1ull << 63, (1ull << 63) + 1);
	/* A stride that no element uses. */
	span_is((struct table_array){ .dtype = u8, .ndim = 1, .shape = { 1 }, STRIDES(INT64_MIN) },
		0, 1);
	span_is((struct table_array){ .dtype = f4, .ndim = 1, .shape = { 5 } }, 0, 3);
	span_is((struct table_array){ .dtype = f4, .ndim = 2, .shape = { 3, 3 } }, 0, 5);
	span_is((struct table_array){ .dtype = f4, .ndim = 1, .shape = { 5 }, STRIDES(0) }, 0, 3);
	span_is((struct table_array){ .dtype = big, .ndim = 1, .shape = { 1ull << 32 } }, 0,
		(uint64_t)UINT32_MAX << 32);
}
END_TEST

START_TEST(a_span_that_would_wrap_is_an_overflow)
{
	const struct table_array arrays[] = {
		{ .dtype = f32, .ndim = 1, .shape = { TOP63 } },
		{ .dtype = f32, .ndim = 2, .shape = { 1ull << 32, 1ull << 32 } },
		{ .dtype = f4, .ndim = 1, .shape = { TOP63 } },
		{ .dtype = big, .ndim = 1, .shape = { 1ull << 33 } },
		{ .dtype = u8, .ndim = 1, .shape = { 3 }, STRIDES(INT64_MIN) },
		{ .dtype = u8, .ndim = 1, .shape = { 4 }, STRIDES(INT64_MAX) },
		{ .dtype = u8, .ndim = 2, .shape = { 2, 2 }, STRIDES(INT64_MIN, INT64_MIN) },
		{ .dtype = u8, .ndim = 3, .shape = { 2, 2, 2 }, STRIDES(INT64_MIN, INT64_MAX, 1) },
	};
	uint64_t before, bytes;

	for (size_t i = 0; i < array_size(arrays); i++)
		ck_assert_msg(table_span(&arrays[i], &before, &bytes) == -EOVERFLOW, "%zu", i);
}
END_TEST

/* The published vectors of FNV-1a 64 (Noll, test_fnv.c). */
START_TEST(the_hash_is_fnv_1a)
{
	ck_assert_uint_eq(fnv1a(FNV1A_BASIS, "", 0), 0xcbf29ce484222325u);
	ck_assert_uint_eq(fnv1a(FNV1A_BASIS, "a", 1), 0xaf63dc4c8601ec8cu);
	ck_assert_uint_eq(fnv1a(FNV1A_BASIS, "foobar", 6), 0x85944171f73967e8u);
	ck_assert_uint_eq(fnv1a(fnv1a(FNV1A_BASIS, "foo", 3), "bar", 3), 0x85944171f73967e8u);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("table_math");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, a_number_of_elements_is_exact_or_an_overflow);
	tcase_add_test(tc, strides_are_numpys);
	tcase_add_test(tc, strides_are_exact_or_an_overflow);
	tcase_add_test(tc, a_span_covers_every_byte);
	tcase_add_test(tc, a_span_that_would_wrap_is_an_overflow);
	tcase_add_test(tc, the_hash_is_fnv_1a);
	return suite_run("table_math", tc, NULL);
}
