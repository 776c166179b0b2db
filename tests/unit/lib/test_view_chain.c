/* SPDX-License-Identifier: MIT
 *
 * Random chains of views, each compared with a slow reference. test_view.c has the cases that
 * random numbers miss.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/view_fixture.h"

/* ---- slice and index ---- */

/* Python's definition, one position after the other (docs.python.org, "Common Sequence
 * Operations", notes 4 and 5). *ret_first is the first position taken. */
static int64_t positions(int64_t n, int64_t start, int64_t stop, int64_t step, int64_t *ret)
{
	__int128 at = start, end = stop;
	int64_t count = 0;

	if (start == GPUSHM_SLICE_NONE)
		at = step > 0 ? 0 : n - 1;
	else if (start < 0)
		at += n;
	if (stop == GPUSHM_SLICE_NONE)
		end = step > 0 ? n : -1;
	else if (stop < 0)
		end = end + n < 0 ? -1 : end + n;

	/* A bound outside of the array is moved to the nearest valid position. */
	if (step > 0 && at < 0)
		at = 0;
	if (step < 0 && at > n - 1)
		at = n - 1;
	for (; at >= 0 && at < n && (step > 0 ? at < end : at > end); at += step)
		ret[count++] = (int64_t)at;
	return count;
}

static void take(struct reference *r, int axis, const int64_t *taken, int64_t count, bool drop)
{
	static struct reference old;
	int64_t index[GPUSHM_MAX_NDIM] = { 0 }, from[GPUSHM_MAX_NDIM];

	old = *r;
	r->shape[axis] = count;
	r->n = product(r->ndim, r->shape);
	for (int64_t i = 0; i < r->n; i++) {
		memcpy(from, index, sizeof(from));
		from[axis] = taken[index[axis]];
		r->address[i] = element(&old, from);
		next_index(r->ndim, r->shape, index);
	}
	if (!drop)
		return;
	r->ndim--;
	memmove(r->shape + axis, r->shape + axis + 1, (size_t)(r->ndim - axis) * sizeof(*r->shape));
}

static int64_t random_bound(int64_t n)
{
	static const int64_t far[] = { INT64_MAX, -INT64_MAX, GPUSHM_SLICE_NONE };
	int64_t dice = random_in(0, 9);

	return dice < 3 ? far[dice] : random_in(-n - 3, n + 3);
}

static int64_t random_step(void)
{
	static const int64_t far[] = { INT64_MAX, INT64_MIN };
	int64_t dice = random_in(0, 19), step;

	if (dice < 2)
		return far[dice];
	step = random_in(1, 3);
	return dice < 10 ? step : -step;
}

static void random_slice(struct gpushm_array **a, struct reference *r)
{
	int axis = (int)random_in(0, r->ndim - 1);
	int64_t n = r->shape[axis], taken[ELEMENTS_MAX];
	int64_t start = random_bound(n), stop = random_bound(n), step = random_step();
	struct gpushm_array *v = NULL;

	take(r, axis, taken, positions(n, start, stop, step, taken), false);
	ck_assert_int_eq(gpushm_array_slice(*a, axis, start, stop, step, &v), 0);
	step_to(a, v);
}

static void random_index(struct gpushm_array **a, struct reference *r)
{
	int axis = (int)random_in(0, r->ndim - 1);
	int64_t n = r->shape[axis], at = random_in(-n - 1, n);
	int64_t taken = at < 0 ? at + n : at;
	struct gpushm_array *v = NULL;

	if (at < -n || at >= n) {
		ck_assert_int_eq(gpushm_array_index(*a, axis, at, &v), -ERANGE);
		return;
	}
	take(r, axis, &taken, 1, true);
	ck_assert_int_eq(gpushm_array_index(*a, axis, at, &v), 0);
	step_to(a, v);
}

/* ---- transpose ---- */

static void permute(struct reference *r, const int *axes)
{
	static struct reference old;
	int64_t index[GPUSHM_MAX_NDIM] = { 0 }, from[GPUSHM_MAX_NDIM];

	old = *r;
	for (int i = 0; i < r->ndim; i++)
		r->shape[i] = old.shape[axes[i]];
	for (int64_t i = 0; i < r->n; i++) {
		for (int j = 0; j < r->ndim; j++)
			from[axes[j]] = index[j];
		r->address[i] = element(&old, from);
		next_index(r->ndim, r->shape, index);
	}
}

static void random_transpose(struct gpushm_array **a, struct reference *r)
{
	int axes[GPUSHM_MAX_NDIM];
	bool reversed = random_in(0, 3) == 0;
	struct gpushm_array *v = NULL;

	for (int i = 0; i < r->ndim; i++)
		axes[i] = reversed ? r->ndim - 1 - i : i;
	for (int i = r->ndim - 1; i > 0 && !reversed; i--) {
		int j = (int)random_in(0, i), t = axes[i];

		axes[i] = axes[j];
		axes[j] = t;
	}
	permute(r, axes);
	ck_assert_int_eq(gpushm_array_transpose(*a, reversed ? NULL : axes, &v), 0);
	step_to(a, v);
}

/* ---- ravel, split, dup ---- */

static bool is_dense(const struct reference *r, char order, int64_t itemsize)
{
	static int64_t list[ELEMENTS_MAX];

	in_order(r, order, list);
	for (int64_t i = 0; i < r->n; i++)
		if (list[i] != list[0] + i * itemsize)
			return false;
	return true;
}

static void random_ravel(struct gpushm_array **a, struct reference *r)
{
	char order = random_in(0, 1) ? 'C' : 'F';
	int64_t itemsize = (int64_t)gpushm_dtype_bits(gpushm_array_dtype(*a)) / 8;
	struct gpushm_array *v = NULL;

	ck_assert_int_eq(gpushm_array_is_c_contiguous(*a), is_dense(r, 'C', itemsize));
	ck_assert_int_eq(gpushm_array_is_f_contiguous(*a), is_dense(r, 'F', itemsize));
	if (!is_dense(r, order, itemsize)) {
		ck_assert_int_eq(gpushm_array_ravel(*a, order, &v), -ENOTSUP);
		return;
	}
	ck_assert_int_eq(gpushm_array_ravel(*a, order, &v), 0);
	regroup(r, order, 1, &r->n);
	step_to(a, v);
}

static void random_split(struct gpushm_array **a, struct reference *r)
{
	int64_t section = random_in(1, r->shape[0] + 2), start = 0, part = 0;
	int64_t chosen, taken[ELEMENTS_MAX], n = 0;
	struct gpushm_array *v = NULL;

	if (r->ndim != 1) {
		ck_assert_int_eq(gpushm_array_split_count(*a, section), -EINVAL);
		ck_assert_int_eq(gpushm_array_split(*a, section, 0, &v), -EINVAL);
		return;
	}
	while (start + part * section < r->shape[0])
		part++;
	ck_assert_int_eq(gpushm_array_split_count(*a, section), part);
	ck_assert_int_eq(gpushm_array_split(*a, section, part, &v), -ERANGE);
	if (part == 0)
		return;
	chosen = random_in(0, part - 1);
	for (int64_t i = chosen * section; i < r->shape[0] && n < section; i++)
		taken[n++] = i;
	take(r, 0, taken, n, false);
	ck_assert_int_eq(gpushm_array_split(*a, section, chosen, &v), 0);
	step_to(a, v);
}

static void random_dup(struct gpushm_array **a, struct reference *r)
{
	struct gpushm_array *v = NULL;

	(void)r;
	ck_assert_int_eq(gpushm_array_dup(*a, &v), 0);
	step_to(a, v);
}

/* ---- chains ---- */

/* Any layout that the buffer holds: dense, or of strides that may be negative, 0 or overlap. */
static struct gpushm_array *random_array(void)
{
	static const char *const dtypes[] = { "uint8", "int16", "float32", "complex128",
					      "record3" };
	const char *dtype = dtypes[random_in(0, 4)];
	int64_t itemsize = (int64_t)gpushm_dtype_bits(dtype_of(dtype)) / 8;
	int64_t align = itemsize == 3 ? 1 : itemsize == 16 ? 8 : itemsize;
	int64_t shape[5], strides[5];
	int ndim = (int)random_in(0, 5);
	bool dense = random_in(0, 1);

	for (int i = 0; i < ndim; i++) {
		shape[i] = random_in(random_in(0, 9) ? 1 : 0, 4);
		strides[i] = random_in(-8, 8) * align;
	}
	return array_of(&s, dtype, ndim, shape, dense ? NULL : strides, BYTES / 2);
}

START_TEST(a_chain_of_views_reaches_the_elements_of_the_slow_reference)
{
	static void (*const steps[])(struct gpushm_array **, struct reference *) = {
		random_slice, random_index,   random_transpose, random_reshape,
		random_ravel, random_reshape, random_split,	random_dup,
	};
	static struct reference r;

	random_start();
	for (int round = 0; round < 20000; round++) {
		struct gpushm_array *a = random_array();

		reference_of(a, &r);
		for (int64_t n = random_in(1, 6); n > 0; n--) {
			int64_t which = random_in(0, (int64_t)array_size(steps) - 1);

			if (r.ndim == 0 && (which < 2 || steps[which] == random_split))
				continue;
			steps[which](&a, &r);
			check_same(a, &r);
		}
		gpushm_array_free(a);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("view chain");

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_chain_of_views_reaches_the_elements_of_the_slow_reference);
	return suite_run("view chain", tc, NULL);
}
