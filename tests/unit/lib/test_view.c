/* SPDX-License-Identifier: MIT
 *
 * Views: slices by Python's rules, axes and parts that do not exist, other dtypes by NumPy's rule,
 * and strides without a meaning. test_view_chain.c compares random views with a slow reference.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/view_fixture.h"

static void check_slice(int64_t n, int64_t start, int64_t stop, int64_t step, int64_t first,
			int64_t length)
{
	struct gpushm_array *a = array_of(&s, "uint8", 1, &n, NULL, 0), *v = NULL;

	ck_assert_int_eq(gpushm_array_slice(a, 0, start, stop, step, &v), 0);
	ck_assert_int_eq(gpushm_array_dim(v, 0), length);
	if (length > 0)
		ck_assert_uint_eq(gpushm_array_offset(v), first);
	gpushm_array_free(v);
	gpushm_array_free(a);
}

/* Written down from the rules of Python's language reference, not computed. */
START_TEST(a_slice_is_that_of_python)
{
	const int64_t none = GPUSHM_SLICE_NONE;

	check_slice(10, none, none, 1, 0, 10);
	check_slice(10, none, none, -1, 9, 10);
	check_slice(10, 2, 8, 3, 2, 2);
	check_slice(10, 8, 2, -3, 8, 2);
	check_slice(10, -3, none, 1, 7, 3);
	check_slice(10, none, -3, 1, 0, 7);
	check_slice(10, none, -11, -1, 9, 10);
	check_slice(10, -1, -11, -1, 9, 10);
	check_slice(10, -100, 100, 4, 0, 3);
	check_slice(10, 100, -100, -4, 9, 3);
	check_slice(10, 5, 5, 1, 0, 0);
	check_slice(10, 5, 2, 1, 0, 0);
	check_slice(10, 2, 5, -1, 0, 0);
	check_slice(10, none, 0, -1, 9, 9);
	check_slice(10, 3, none, INT64_MAX, 3, 1);
	check_slice(10, 3, none, INT64_MIN, 3, 1);
	check_slice(0, none, none, -1, 0, 0);
	check_slice(0, 5, -5, 1, 0, 0);
}
END_TEST

START_TEST(an_axis_that_does_not_exist_is_refused)
{
	struct gpushm_array *a = array_of(&s, "int8", 2, SHAPE(2, 3), NULL, 0), *v = NULL;
	struct gpushm_array *scalar = array_of(&s, "int8", 0, NULL, NULL, 7);

	ck_assert_int_eq(gpushm_array_slice(a, 2, 0, 1, 1, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_slice(a, -1, 0, 1, 1, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_slice(a, 0, 0, 1, 0, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_index(scalar, 0, 0, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_index(a, 0, INT64_MIN, &v), -ERANGE);
	ck_assert_int_eq(gpushm_array_index(a, 0, INT64_MAX, &v), -ERANGE);
	ck_assert_int_eq(gpushm_array_transpose(a, (int[]){ 0, 0 }, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_transpose(a, (int[]){ 0, 2 }, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_transpose(a, (int[]){ -1, 0 }, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_split_count(scalar, 1), -EINVAL);
	ck_assert_ptr_null(v);

	ck_assert_int_eq(gpushm_array_transpose(scalar, NULL, &v), 0);
	ck_assert_uint_eq(gpushm_array_offset(v), 7);
	gpushm_array_free(v);
	gpushm_array_free(scalar);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_split_needs_parts_of_at_least_one_element)
{
	struct gpushm_array *a = array_of(&s, "int8", 1, SHAPE(5), NULL, 0), *v = NULL;

	ck_assert_int_eq(gpushm_array_split_count(a, 0), -EINVAL);
	ck_assert_int_eq(gpushm_array_split_count(a, -1), -EINVAL);
	ck_assert_int_eq(gpushm_array_split(a, 2, -1, &v), -ERANGE);
	ck_assert_int_eq(gpushm_array_split_count(a, INT64_MAX), 1);
	ck_assert_int_eq(gpushm_array_split(a, INT64_MAX, 0, &v), 0);
	ck_assert_int_eq(gpushm_array_dim(v, 0), 5);
	gpushm_array_free(v);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_view_keeps_its_descr_and_outlives_its_origin)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .dtype = dtype_of("record8"),
					  .descr = "[('a', '<i8')]",
					  .ndim = 1,
					  .shape = SHAPE(4) };
	struct gpushm_array *a = NULL, *v = NULL, *w = NULL;

	ck_assert_int_eq(gpushm_array_over(&s.buffer, &spec, &a), 0);
	ck_assert_int_eq(gpushm_array_slice(a, 0, 1, 3, 1, &v), 0);
	gpushm_array_free(a);
	ck_assert_str_eq(gpushm_array_descr(v), "[('a', '<i8')]");
	ck_assert_int_eq(gpushm_array_view(v, dtype_of("int64"), &w), 0);
	ck_assert_ptr_null(gpushm_array_descr(w));
	gpushm_array_free(w);
	ck_assert_int_eq(gpushm_array_view(v, dtype_of("record8"), &w), 0);
	ck_assert_str_eq(gpushm_array_descr(w), "[('a', '<i8')]");
	gpushm_array_free(w);
	gpushm_array_free(v);
}
END_TEST

/* ---- another dtype ---- */

static int view_last(const struct gpushm_array *a, const char *dtype, int64_t *ret_last,
		     int64_t *ret_stride)
{
	struct gpushm_array *v = NULL;
	int r = gpushm_array_view(a, dtype_of(dtype), &v), last;

	if (r < 0)
		return r;
	last = gpushm_array_ndim(v) - 1;
	*ret_last = gpushm_array_dim(v, last);
	*ret_stride = last < 0 ? 0 : gpushm_array_strides(v)[last];
	ck_assert_uint_eq(gpushm_array_offset(v), gpushm_array_offset(a));
	ck_assert_uint_eq(gpushm_array_nbytes(v), gpushm_array_nbytes(a));
	gpushm_array_free(v);
	return r;
}

START_TEST(a_view_of_another_dtype_follows_numpys_rule)
{
	struct gpushm_array *a = array_of(&s, "float32", 2, SHAPE(3, 4), NULL, 64);
	struct gpushm_array *f = array_of(&s, "float32", 2, SHAPE(3, 4), SHAPE(4, 12), 64);
	struct gpushm_array *one = array_of(&s, "float32", 2, SHAPE(3, 1), SHAPE(16, 400), 64);
	struct gpushm_array *scalar = array_of(&s, "float32", 0, NULL, NULL, 64);
	struct gpushm_array *empty = array_of(&s, "float32", 2, SHAPE(0, 4), SHAPE(4, 12), 64);
	struct gpushm_array *wide = array_of(&s, "float32", 1, SHAPE(3), NULL, 64);
	struct gpushm_array *three = array_of(&s, "record3", 1, SHAPE(4), NULL, 64);
	int64_t last = -7, stride = -7;

	ck_assert_int_eq(view_last(a, "int32", &last, &stride), 0);
	ck_assert(last == 4 && stride == 4);
	ck_assert_int_eq(view_last(a, "float16", &last, &stride), 0);
	ck_assert(last == 8 && stride == 2);
	ck_assert_int_eq(view_last(a, "float64", &last, &stride), 0);
	ck_assert(last == 2 && stride == 8);
	ck_assert_int_eq(view_last(a, "record16", &last, &stride), 0);
	ck_assert(last == 1 && stride == 16);
	ck_assert_int_eq(view_last(a, "record3", &last, &stride), -EINVAL);
	ck_assert_int_eq(view_last(a, "record5", &last, &stride), -EINVAL);
	/* 12 bytes are four items of 3 bytes, but not a whole number of items of 4 */
	ck_assert_int_eq(view_last(wide, "record3", &last, &stride), -EINVAL);
	ck_assert_int_eq(view_last(a, "record32", &last, &stride), -EINVAL);

	ck_assert_int_eq(view_last(f, "int32", &last, &stride), 0);
	ck_assert(last == 4 && stride == 12);
	ck_assert_int_eq(view_last(f, "int16", &last, &stride), -EINVAL);
	ck_assert_int_eq(view_last(one, "int16", &last, &stride), 0);
	ck_assert(last == 2 && stride == 2);
	ck_assert_int_eq(view_last(scalar, "int32", &last, &stride), 0);
	ck_assert_int_eq(view_last(scalar, "int16", &last, &stride), -EINVAL);
	ck_assert_int_eq(view_last(empty, "int16", &last, &stride), 0);
	ck_assert(last == 8 && stride == 2);
	ck_assert_int_eq(view_last(three, "uint8", &last, &stride), 0);
	ck_assert(last == 12 && stride == 1);

	gpushm_array_free(a);
	gpushm_array_free(f);
	gpushm_array_free(one);
	gpushm_array_free(scalar);
	gpushm_array_free(empty);
	gpushm_array_free(wide);
	gpushm_array_free(three);
}
END_TEST

START_TEST(a_view_that_a_gpu_can_not_load_is_refused)
{
	struct gpushm_array *odd = array_of(&s, "uint8", 1, SHAPE(8), NULL, 1), *v = NULL;
	struct gpushm_array *rows = array_of(&s, "uint8", 2, SHAPE(2, 8), SHAPE(10, 1), 0);
	struct gpushm_array *row = array_of(&s, "uint8", 2, SHAPE(1, 8), SHAPE(10, 1), 0);
	struct gpushm_dtype bad = { .code = 77, .bits = 8, .lanes = 1 };

	ck_assert_int_eq(gpushm_array_view(odd, dtype_of("int16"), &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_view(rows, dtype_of("int32"), &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_view(odd, bad, &v), -EINVAL);
	ck_assert_int_eq(gpushm_array_view(odd, dtype_of("float6_e2m3fn"), &v), -ENOTSUP);
	ck_assert_ptr_null(v);
	ck_assert_int_eq(gpushm_array_view(row, dtype_of("int32"), &v), 0);
	gpushm_array_free(v);
	ck_assert_int_eq(gpushm_array_view(rows, dtype_of("int16"), &v), 0);
	gpushm_array_free(v);
	gpushm_array_free(odd);
	gpushm_array_free(rows);
	gpushm_array_free(row);
}
END_TEST

START_TEST(a_complex_view_of_a_records_field_is_allowed)
{
	/* 20-byte records, a complex64 at byte 4 of each */
	struct gpushm_array *field = array_of(&s, "uint8", 2, SHAPE(3, 8), SHAPE(20, 1), 4);
	struct gpushm_array *v = NULL;

	ck_assert_int_eq(gpushm_array_view(field, dtype_of("complex64"), &v), 0);
	ck_assert_int_eq(gpushm_array_dim(v, 1), 1);
	gpushm_array_free(v);
	gpushm_array_free(field);
}
END_TEST

/* A stride that no step uses may be anything: the table's check accepts it. */
START_TEST(a_stride_that_no_step_uses_is_ignored)
{
	struct gpushm_array *a = array_of(&s, "int8", 2, SHAPE(1, 4), SHAPE(INT64_MIN, 1), 8);
	struct gpushm_array *e =
		array_of(&s, "int8", 2, SHAPE(0, INT64_MAX), SHAPE(INT64_MAX, INT64_MIN), 8);
	struct gpushm_array *v = NULL;
	int64_t last, stride;

	ck_assert_int_eq(gpushm_array_slice(a, 0, GPUSHM_SLICE_NONE, GPUSHM_SLICE_NONE, -1, &v), 0);
	gpushm_array_free(v);
	ck_assert_int_eq(gpushm_array_index(a, 0, -1, &v), 0);
	ck_assert_uint_eq(gpushm_array_offset(v), 8);
	gpushm_array_free(v);
	ck_assert_int_eq(gpushm_array_reshape(a, 'F', 2, SHAPE(2, 2), &v), 0);
	gpushm_array_free(v);
	ck_assert_int_eq(view_last(a, "int16", &last, &stride), 0);

	ck_assert_int_eq(gpushm_array_slice(e, 1, 5, GPUSHM_SLICE_NONE, 3, &v), 0);
	ck_assert_uint_eq(gpushm_array_offset(v), 8);
	gpushm_array_free(v);
	ck_assert_int_eq(gpushm_array_index(e, 1, INT64_MAX - 1, &v), 0);
	ck_assert_uint_eq(gpushm_array_offset(v), 8);
	gpushm_array_free(v);
	ck_assert_int_eq(view_last(e, "int16", &last, &stride), -EINVAL);
	ck_assert_int_eq(gpushm_array_is_c_contiguous(e), 1);
	gpushm_array_free(e);
	gpushm_array_free(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("view");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_slice_is_that_of_python);
	tcase_add_test(tc, an_axis_that_does_not_exist_is_refused);
	tcase_add_test(tc, a_split_needs_parts_of_at_least_one_element);
	tcase_add_test(tc, a_view_keeps_its_descr_and_outlives_its_origin);
	tcase_add_test(tc, a_view_of_another_dtype_follows_numpys_rule);
	tcase_add_test(tc, a_view_that_a_gpu_can_not_load_is_refused);
	tcase_add_test(tc, a_complex_view_of_a_records_field_is_allowed);
	tcase_add_test(tc, a_stride_that_no_step_uses_is_ignored);
	return suite_run("view", tc, NULL);
}
