/* SPDX-License-Identifier: MIT
 *
 * The slow reference for views. It keeps the address of every element of an array, in C order, and
 * applies an operation by looking up every element. A view is right if it has the same shape and
 * the same addresses. And random reshapes, for two tests.
 */
#pragma once

#include "tests/unit/lib/array_fixture.h"

#include <errno.h>

#define ELEMENTS_MAX 4096
#define BYTES 65536

static struct scene s;

static inline void setup(void)
{
	fds_mark();
	scene_open(&s, GPUSHM_HOST, BYTES);
}

static inline void teardown(void)
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

static inline int64_t product(int ndim, const int64_t *shape)
{
	int64_t n = 1;

	for (int i = 0; i < ndim; i++)
		n *= shape[i];
	return n;
}

static inline int64_t element(const struct reference *r, const int64_t *index)
{
	int64_t at = 0;

	for (int i = 0; i < r->ndim; i++)
		at = at * r->shape[i] + index[i];
	return r->address[at];
}

static inline void reference_of(const struct gpushm_array *a, struct reference *r)
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

static inline void check_same(const struct gpushm_array *a, const struct reference *expected)
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
static inline void step_to(struct gpushm_array **a, struct gpushm_array *view)
{
	gpushm_array_free(*a);
	*a = view;
}

/* ---- reshape ---- */

/* The elements in the order in which a reshape counts them. */
static inline void in_order(const struct reference *r, char order, int64_t *ret)
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

static inline void regroup(struct reference *r, char order, int ndim, const int64_t *shape)
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

/* Whether one stride for each axis reaches all elements: a view needs that, a copy does not.
 * An axis's stride can only be the distance of its first two elements. */
static inline bool is_strided(const struct reference *r)
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
static inline int random_factors(int64_t n, int64_t *shape)
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

static inline int random_shape(int64_t n, int64_t *shape)
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

static inline void random_reshape(struct gpushm_array **a, struct reference *r)
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
