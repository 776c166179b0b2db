/* SPDX-License-Identifier: MIT
 *
 * Views against the slow road. A reference keeps the address of every element, in C order; each
 * operation is done on it by looking every element up, and the view must then have the same shape
 * and the same addresses. Random chains of operations, and the cases that random numbers miss.
 */
#include "tests/unit/array_fixture.h"

#include <errno.h>

#define ELEMENTS_MAX 4096
#define BYTES 65536

static struct scene s;

static void setup(void)
{
	fds_mark();
	scene_open(&s, GPUSHM_HOST, BYTES);
}

static void teardown(void)
{
	scene_close(&s);
	fds_check();
}

/* ---- the reference ---- */

struct reference {
	int ndim;
	int64_t shape[GPUSHM_MAX_NDIM];
	int64_t n;
	int64_t address[ELEMENTS_MAX]; /* of the n elements in C order, from the buffer's start */
};

static int64_t product(int ndim, const int64_t *shape)
{
	int64_t n = 1;

	for (int i = 0; i < ndim; i++)
		n *= shape[i];
	return n;
}

static int64_t element(const struct reference *r, const int64_t *index)
{
	int64_t at = 0;

	for (int i = 0; i < r->ndim; i++)
		at = at * r->shape[i] + index[i];
	return r->address[at];
}

static void reference_of(const struct gpushm_array *a, struct reference *r)
{
	int64_t index[GPUSHM_MAX_NDIM] = { 0 };

	r->ndim = gpushm_array_ndim(a);
	for (int i = 0; i < r->ndim; i++)
		r->shape[i] = gpushm_array_shape(a)[i];
	r->n = product(r->ndim, r->shape);
	ck_assert_int_le(r->n, ELEMENTS_MAX);
	for (int64_t i = 0; i < r->n; i++) {
		r->address[i] = (int64_t)gpushm_array_offset(a) +
				address_of(r->ndim, gpushm_array_strides(a), index);
		next_index(r->ndim, r->shape, index);
	}
}

static void check_same(const struct gpushm_array *a, const struct reference *expected)
{
	static struct reference got;

	reference_of(a, &got);
	ck_assert_int_eq(got.ndim, expected->ndim);
	for (int i = 0; i < got.ndim; i++)
		if (got.shape[i] != expected->shape[i])
			ck_abort_msg("axis %d has %lld elements, not %lld", i,
				     (long long)got.shape[i], (long long)expected->shape[i]);
	ck_assert_int_eq(gpushm_array_size(a), expected->n);
	/* Each ck_assert, right or wrong, is a message to Check's parent: one would be too slow
	 * here. */
	for (int64_t i = 0; i < got.n; i++)
		if (got.address[i] != expected->address[i] || got.address[i] < 0 ||
		    got.address[i] >= BYTES)
			ck_abort_msg("element %lld is at %lld, and should be at %lld", (long long)i,
				     (long long)got.address[i], (long long)expected->address[i]);
	ck_assert_uint_le(gpushm_array_offset(a), BYTES);
}

/* Replaces *a by the view, and frees it. */
static void step_to(struct gpushm_array **a, struct gpushm_array *view)
{
	gpushm_array_free(*a);
	*a = view;
}

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

	/* What lies outside is cut to the nearest position there is on the way. */
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

/* ---- reshape ---- */

/* The elements in the order in which a reshape counts them. */
static void in_order(const struct reference *r, char order, int64_t *ret)
{
	int64_t index[GPUSHM_MAX_NDIM] = { 0 };

	for (int64_t i = 0; i < r->n; i++) {
		int64_t at = 0;

		for (int j = r->ndim - 1; j >= 0; j--)
			at = at * r->shape[j] + index[j];
		ret[order == 'F' ? at : i] = element(r, index);
		next_index(r->ndim, r->shape, index);
	}
}

static void regroup(struct reference *r, char order, int ndim, const int64_t *shape)
{
	static int64_t list[ELEMENTS_MAX];
	int64_t index[GPUSHM_MAX_NDIM] = { 0 };

	in_order(r, order, list);
	r->ndim = ndim;
	memcpy(r->shape, shape, (size_t)ndim * sizeof(*shape));
	for (int64_t i = 0; i < r->n; i++) {
		int64_t at = 0;

		for (int j = ndim - 1; j >= 0; j--)
			at = at * shape[j] + index[j];
		r->address[i] = list[order == 'F' ? at : i];
		next_index(ndim, shape, index);
	}
}

/* Whether one stride for each axis reaches all elements: what a view can do, and a copy need not.
 * An axis's stride can only be the distance of its first two elements. */
static bool is_strided(const struct reference *r)
{
	int64_t strides[GPUSHM_MAX_NDIM] = { 0 }, index[GPUSHM_MAX_NDIM] = { 0 };

	for (int i = 0; i < r->ndim && r->n > 0; i++) {
		int64_t second[GPUSHM_MAX_NDIM] = { 0 };

		second[i] = r->shape[i] > 1;
		strides[i] = element(r, second) - r->address[0];
	}
	for (int64_t i = 0; i < r->n; i++) {
		if (r->address[0] + address_of(r->ndim, strides, index) != r->address[i])
			return false;
		next_index(r->ndim, r->shape, index);
	}
	return true;
}

/* Factors of n in a random order, with some ones. */
static int random_factors(int64_t n, int64_t *shape)
{
	int ndim = 0;

	while (n > 1 && ndim < 6) {
		int64_t f = random_in(2, n);

		while (n % f != 0)
			f = f == n ? 2 : f + 1;
		if (random_in(0, 3) == 0)
			shape[ndim++] = 1;
		shape[ndim++] = f;
		n /= f;
	}
	if (n > 1)
		shape[ndim++] = n;
	return ndim;
}

static int random_shape(int64_t n, int64_t *shape)
{
	int ndim;

	if (n > 0)
		return random_factors(n, shape);
	ndim = (int)random_in(1, 4);
	for (int i = 0; i < ndim; i++)
		shape[i] = random_in(0, 3);
	shape[random_in(0, ndim - 1)] = 0;
	return ndim;
}

static void random_reshape(struct gpushm_array **a, struct reference *r)
{
	static struct reference wanted;
	int64_t shape[GPUSHM_MAX_NDIM] = { 0 }, asked[GPUSHM_MAX_NDIM];
	char order = random_in(0, 1) ? 'C' : 'F';
	int ndim = random_shape(r->n, shape);
	struct gpushm_array *v = NULL;

	wanted = *r;
	regroup(&wanted, order, ndim, shape);
	memcpy(asked, shape, sizeof(asked));
	if (ndim > 0 && r->n > 0 && random_in(0, 1))
		asked[random_in(0, ndim - 1)] = -1;
	if (!is_strided(&wanted)) {
		ck_assert_int_eq(gpushm_array_reshape(*a, order, ndim, asked, &v), -ENOTSUP);
		return;
	}
	ck_assert_msg(gpushm_array_reshape(*a, order, ndim, asked, &v) == 0, "%s", gpushm_error());
	*r = wanted;
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
	int64_t align = itemsize == 3 ? 1 : itemsize == 16 ? 16 : itemsize;
	int64_t shape[5], strides[5];
	int ndim = (int)random_in(0, 5);
	bool dense = random_in(0, 1);

	for (int i = 0; i < ndim; i++) {
		shape[i] = random_in(random_in(0, 9) ? 1 : 0, 4);
		strides[i] = random_in(-8, 8) * align;
	}
	return array_of(&s, dtype, ndim, shape, dense ? NULL : strides, BYTES / 2);
}

START_TEST(a_chain_of_views_reaches_other_elements_than_the_slow_road)
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

/* Every shape of 24 elements over every way to step through a 2x3x4 block. */
START_TEST(a_reshape_is_refused_that_needs_no_copy_or_done_that_needs_one)
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

/* ---- what random numbers miss ---- */

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
START_TEST(a_slice_is_not_pythons)
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

START_TEST(an_axis_that_is_not_there_is_used)
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

START_TEST(a_split_takes_parts_of_no_or_fewer_elements)
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

static int try_reshape(const struct gpushm_array *a, char order, int ndim, const int64_t *shape)
{
	struct gpushm_array *v = NULL;
	int r = gpushm_array_reshape(a, order, ndim, shape, &v);

	ck_assert(r < 0 ? v == NULL : v != NULL);
	gpushm_array_free(v);
	return r;
}

START_TEST(a_shape_of_other_elements_is_taken)
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

START_TEST(a_packed_array_is_cut_within_a_byte_or_turned)
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

START_TEST(a_view_forgets_its_name_or_dies_with_its_origin)
{
	struct gpushm_array_spec spec = { .dtype = dtype_of("record8"),
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

START_TEST(a_view_of_another_dtype_breaks_numpys_rule)
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
	/* 12 bytes are four items of 3, but an item of 4 is not whole ones. */
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

START_TEST(a_view_is_given_whose_elements_a_gpu_could_not_load)
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

/* A stride that nobody steps by may be anything: the table's check lets it through. */
START_TEST(a_stride_that_means_nothing_is_multiplied)
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
	ck_assert_int_eq(try_reshape(a, 'F', 2, SHAPE(2, 2)), 0);
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
	Suite *suite = suite_create("view");
	TCase *tc = tcase_create("view");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_chain_of_views_reaches_other_elements_than_the_slow_road);
	tcase_add_test(tc, a_reshape_is_refused_that_needs_no_copy_or_done_that_needs_one);
	tcase_add_test(tc, a_slice_is_not_pythons);
	tcase_add_test(tc, an_axis_that_is_not_there_is_used);
	tcase_add_test(tc, a_split_takes_parts_of_no_or_fewer_elements);
	tcase_add_test(tc, a_shape_of_other_elements_is_taken);
	tcase_add_test(tc, a_packed_array_is_cut_within_a_byte_or_turned);
	tcase_add_test(tc, a_view_forgets_its_name_or_dies_with_its_origin);
	tcase_add_test(tc, a_view_of_another_dtype_breaks_numpys_rule);
	tcase_add_test(tc, a_view_is_given_whose_elements_a_gpu_could_not_load);
	tcase_add_test(tc, a_stride_that_means_nothing_is_multiplied);
	suite_add_tcase(suite, tc);

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
