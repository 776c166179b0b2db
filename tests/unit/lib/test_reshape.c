/* SPDX-License-Identifier: MIT
 *
 * Reshapes: every way to regroup a block with every order of strides, compared with a brute-force
 * search for strides; and invalid shapes.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/view_fixture.h"

/* Every shape of 24 elements over every order of strides of a 2x3x4 block. */
START_TEST(a_reshape_is_done_exactly_if_it_needs_no_copy)
{
	static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					  { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	static const int64_t steps[] = { 1, -1, 2 };
	static struct reference base;
	struct gpushm_array *a = array_of(&s, "int16", 3, SHAPE(2, 6, 8), NULL, 0), *t, *b, *c;

	random_start();
	for (int order = 0; order < 6; order++)
		for (int step = 0; step < 9; step++) {
			ck_assert_int_eq(gpushm_array_slice(a, 1, GPUSHM_SLICE_NONE,
							    GPUSHM_SLICE_NONE, steps[step / 3], &b),
					 0);
			ck_assert_int_eq(gpushm_array_slice(b, 2, GPUSHM_SLICE_NONE,
							    GPUSHM_SLICE_NONE, steps[step % 3], &c),
					 0);
			ck_assert_int_eq(gpushm_array_transpose(c, orders[order], &t), 0);
			reference_of(t, &base);
			for (int i = 0; i < 100; i++) {
				static struct reference r;
				struct gpushm_array *v = NULL;

				r = base;
				ck_assert_int_eq(gpushm_array_dup(t, &v), 0);
				random_reshape(&v, &r);
				check_same(v, &r);
				gpushm_array_free(v);
			}
			gpushm_array_free(b);
			gpushm_array_free(c);
			gpushm_array_free(t);
		}
	gpushm_array_free(a);
}
END_TEST

static int try_reshape(const struct gpushm_array *a, char order, int ndim, const int64_t *shape)
{
	struct gpushm_array *v = NULL;
	int r = gpushm_array_reshape(a, order, ndim, shape, &v);

	ck_assert(r < 0 ? v == NULL : v != NULL);
	gpushm_array_free(v);
	return r;
}

START_TEST(a_shape_of_another_number_of_elements_is_refused)
{
	struct gpushm_array *a = array_of(&s, "int8", 2, SHAPE(2, 6), NULL, 0);
	struct gpushm_array *empty = array_of(&s, "int8", 2, SHAPE(0, 6), NULL, 0);
	struct gpushm_array *scalar = array_of(&s, "int8", 0, NULL, NULL, 0);
	int64_t ones[33];

	for (int i = 0; i < 33; i++)
		ones[i] = 1;
	ck_assert_int_eq(try_reshape(a, 'C', 1, SHAPE(11)), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', 2, SHAPE(-1, 5)), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', 2, SHAPE(-1, -1)), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', 2, SHAPE(-2, -6)), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', 2, SHAPE(0, -1)), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'K', 1, SHAPE(12)), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', 33, ones), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', -1, ones), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', 0, NULL), -EINVAL);
	ck_assert_int_eq(try_reshape(a, 'C', 3, SHAPE(INT64_MAX, INT64_MAX, 12)), -EINVAL);
	ck_assert_int_eq(try_reshape(scalar, 'F', 32, ones), 0);
	ck_assert_int_eq(try_reshape(scalar, 'C', 0, NULL), 0);
	ck_assert_int_eq(try_reshape(empty, 'C', 2, SHAPE(-1, 7)), 0);
	ck_assert_int_eq(try_reshape(empty, 'C', 2, SHAPE(-1, 0)), -EINVAL);
	ck_assert_int_eq(try_reshape(empty, 'C', 3, SHAPE(INT64_MAX, INT64_MAX, 0)), 0);
	ck_assert_int_eq(try_reshape(empty, 'C', 4, SHAPE(INT64_MAX, 2, 0, 2)), 0);
	ck_assert_int_eq(try_reshape(empty, 'F', 4, SHAPE(0, INT64_MAX, 2, 2)), -EINVAL);
	gpushm_array_free(a);
	gpushm_array_free(empty);
	gpushm_array_free(scalar);
}
END_TEST

START_TEST(a_packed_array_can_only_be_reshaped_in_its_order)
{
	struct gpushm_array *a = array_of(&s, "float4_e2m1fn", 2, SHAPE(2, 3), NULL, 0), *v = NULL;

	ck_assert_int_eq(gpushm_array_slice(a, 0, 0, 1, 1, &v), -ENOTSUP);
	ck_assert_int_eq(gpushm_array_index(a, 0, 0, &v), -ENOTSUP);
	ck_assert_int_eq(gpushm_array_transpose(a, NULL, &v), -ENOTSUP);
	ck_assert_int_eq(gpushm_array_view(a, dtype_of("uint8"), &v), -ENOTSUP);
	ck_assert_int_eq(try_reshape(a, 'C', 2, SHAPE(3, 2)), 0);
	ck_assert_int_eq(try_reshape(a, 'C', 1, SHAPE(-1)), 0);
	ck_assert_int_eq(try_reshape(a, 'F', 2, SHAPE(3, 2)), -ENOTSUP);
	ck_assert_int_eq(try_reshape(a, 'F', 1, SHAPE(6)), -ENOTSUP);
	ck_assert_int_eq(try_reshape(a, 'F', 3, SHAPE(2, 1, 3)), 0);
	ck_assert_int_eq(gpushm_array_ravel(a, 'F', &v), -ENOTSUP);
	ck_assert_ptr_null(v);

	ck_assert_int_eq(gpushm_array_ravel(a, 'C', &v), 0);
	ck_assert_int_eq(gpushm_array_dim(v, 0), 6);
	ck_assert_int_eq(gpushm_array_strides(v)[0], 0);
	ck_assert_uint_eq(gpushm_array_nbytes(v), 3);
	ck_assert_int_eq(try_reshape(v, 'F', 2, SHAPE(2, 3)), -ENOTSUP);
	ck_assert_int_eq(try_reshape(v, 'F', 2, SHAPE(1, 6)), 0);
	gpushm_array_free(v);
	gpushm_array_free(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("reshape");

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_reshape_is_done_exactly_if_it_needs_no_copy);
	tcase_add_test(tc, a_shape_of_another_number_of_elements_is_refused);
	tcase_add_test(tc, a_packed_array_can_only_be_reshaped_in_its_order);
	return suite_run("reshape", tc, NULL);
}
