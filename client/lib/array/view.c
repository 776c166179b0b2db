/* SPDX-License-Identifier: MIT
 *
 * Views that change the start, the length and the stride of axes: slice, index, transpose, split,
 * another dtype, another reference. A view shares the memory and keeps the buffer; it does not need
 * the array that it was made of. reshape.c makes the views that regroup axes.
 *
 * Nothing here reads an element. Arithmetic stays within the span that the table's check allowed.
 * Offsets and strides of arrays without elements may be anything and are left as they are.
 */
#include "client/lib/array/array.h"

#include "client/lib/base/error.h"
#include "client/lib/base/spec.h"

#include <errno.h>
#include <inttypes.h>

/* The checks of every view along an axis. */
static int check_axis(const struct gpushm_array *a, int axis)
{
	int r = array_check(a);

	if (r < 0)
		return r;
	if (dtype_packed(a->layout.dtype))
		return array_error(
			a, ENOTSUP,
			"elements narrower than a byte can be reshaped and ravelled only");
	if (axis < 0 || axis >= a->layout.ndim)
		return error_set(EINVAL, "array \"%s\" has %d dimensions, and no axis %d", a->text,
				 a->layout.ndim, axis);
	return 0;
}

/* A position by the rules of Python's slices: -1 ... n - 1 backwards, 0 ... n forwards. */
static int64_t clip(int64_t at, int64_t n, bool backwards)
{
	if (at < 0)
		at += n;
	if (at < 0)
		return backwards ? -1 : 0;
	if (at >= n)
		return backwards ? n - 1 : n;
	return at;
}

/* The number of positions start, start + step, ... before stop. Makes *start count from 0. */
static int64_t slice_length(int64_t n, int64_t *start, int64_t stop, int64_t step)
{
	bool back = step < 0;
	/* Unsigned, because -INT64_MIN overflows int64_t. */
	uint64_t stride = back ? -(uint64_t)step : (uint64_t)step;
	int64_t from = back ? n - 1 : 0, to = back ? -1 : n, distance;

	if (*start != GPUSHM_SLICE_NONE)
		from = clip(*start, n, back);
	if (stop != GPUSHM_SLICE_NONE)
		to = clip(stop, n, back);
	distance = back ? from - to : to - from;
	*start = from;
	return distance <= 0 ? 0 : (int64_t)(((uint64_t)distance - 1) / stride + 1);
}

int gpushm_array_slice(const struct gpushm_array *a, int axis, int64_t start, int64_t stop,
		       int64_t step, struct gpushm_array **ret)
{
	struct array_layout l;
	int r = check_axis(a, axis);

	if (r < 0)
		return r;
	l = a->layout;
	if (step == 0)
		return array_error(a, EINVAL, "a slice's step can't be 0");

	l.shape[axis] = slice_length(l.shape[axis], &start, stop, step);
	if (array_elements(l.ndim, l.shape) > 0 && a->layout.shape[axis] > 1) {
		l.offset += (uint64_t)start * (uint64_t)l.strides[axis];
		/* With one element the stride stays, so that a huge step can't overflow. */
		if (l.shape[axis] > 1)
			l.strides[axis] *= step;
	}
	return array_derive(a, &l, ret);
}

int gpushm_array_index(const struct gpushm_array *a, int axis, int64_t index,
		       struct gpushm_array **ret)
{
	struct array_layout l;
	int r = check_axis(a, axis);

	if (r < 0)
		return r;
	l = a->layout;
	if (index < -l.shape[axis] || index >= l.shape[axis])
		return array_error(a, ERANGE,
				   "index %" PRId64 " is outside of axis %d, which has %" PRId64
				   " elements",
				   index, axis, l.shape[axis]);

	/* The stride of an axis of length 1 may be anything: it is not used. */
	index += index < 0 ? l.shape[axis] : 0;
	if (index > 0 && a->size > 0)
		l.offset += (uint64_t)index * (uint64_t)l.strides[axis];
	l.ndim--;
	for (int i = axis; i < l.ndim; i++) {
		l.shape[i] = l.shape[i + 1];
		l.strides[i] = l.strides[i + 1];
	}
	return array_derive(a, &l, ret);
}

static bool is_permutation(const int *axes, int n)
{
	uint64_t seen = 0;

	for (int i = 0; i < n; i++) {
		if (axes[i] < 0 || axes[i] >= n || seen >> axes[i] & 1)
			return false;
		seen |= (uint64_t)1 << axes[i];
	}
	return true;
}

int gpushm_array_transpose(const struct gpushm_array *a, const int *axes, struct gpushm_array **ret)
{
	struct array_layout l;
	int r = array_check(a);

	/* A scalar has no axes, and can be transposed too. */
	if (r == 0 && (a->layout.ndim > 0 || dtype_packed(a->layout.dtype)))
		r = check_axis(a, 0);
	if (r < 0)
		return r;
	l = a->layout;
	if (axes && !is_permutation(axes, l.ndim))
		return array_error(a, EINVAL, "axes must be a permutation of 0 to %d", l.ndim - 1);

	for (int i = 0; i < l.ndim; i++) {
		int from = axes ? axes[i] : l.ndim - 1 - i;

		l.shape[i] = a->layout.shape[from];
		l.strides[i] = a->layout.strides[from];
	}
	return array_derive(a, &l, ret);
}

int64_t gpushm_array_split_count(const struct gpushm_array *a, int64_t section)
{
	int r = array_check(a);

	if (r < 0)
		return r;
	if (a->layout.ndim != 1)
		return error_set(EINVAL, "array \"%s\" has %d dimensions; only one can be split",
				 a->text, a->layout.ndim);
	if (section <= 0)
		return array_error(a, EINVAL, "parts of %" PRId64 " elements", section);
	return a->size / section + (a->size % section != 0);
}

int gpushm_array_split(const struct gpushm_array *a, int64_t section, int64_t i,
		       struct gpushm_array **ret)
{
	int64_t parts = gpushm_array_split_count(a, section), start;

	if (parts < 0)
		return (int)parts;
	if (i < 0 || i >= parts)
		return error_set(ERANGE,
				 "array \"%s\" has %" PRId64 " parts of %" PRId64
				 " elements, and none at %" PRId64,
				 a->text, parts, section, i);
	start = i * section;
	return gpushm_array_slice(a, 0, start,
				  section < a->size - start ? start + section : a->size, 1, ret);
}

int gpushm_array_dup(const struct gpushm_array *a, struct gpushm_array **ret)
{
	int r = array_check(a);

	return r < 0 ? r : array_derive(a, &a->layout, ret);
}

/* ---- another dtype ---- */

/* Rescales the last axis from items of `from` bytes to items of `to` bytes. */
static int rescale(const struct gpushm_array *a, struct array_layout *l, int64_t from, int64_t to)
{
	int last = l->ndim - 1;
	int64_t bytes;

	if (l->ndim == 0)
		return error_set(EINVAL,
				 "array \"%s\" is a scalar of %" PRId64
				 " bytes: it can't be viewed as %" PRId64,
				 a->text, from, to);
	if (a->size > 0 && l->shape[last] != 1 && l->strides[last] != from)
		return array_error(
			a, EINVAL,
			"its last axis is not contiguous, and the item sizes differ (%" PRId64
			" and %" PRId64 " bytes)",
			from, to);
	if (__builtin_mul_overflow(l->shape[last], from, &bytes) || bytes % to != 0 ||
	    (from > to && from % to != 0))
		return array_error(a, EINVAL,
				   "its last axis has %" PRId64 " items of %" PRId64
				   " bytes, which %" PRId64 " does not divide",
				   l->shape[last], from, to);
	l->shape[last] = bytes / to;
	l->strides[last] = to;
	return 0;
}

/* NumPy allows misaligned views. On a GPU a misaligned load destroys the context, so they are
 * refused, as the table's check does. */
static int check_alignment(const struct gpushm_array *a, const struct array_layout *l)
{
	uint32_t align = dtype_align(l->dtype);
	bool aligned = l->offset % align == 0;

	for (int i = 0; i < l->ndim; i++)
		aligned = aligned && (l->shape[i] <= 1 || l->strides[i] % (int64_t)align == 0);
	if (!aligned && a->size > 0)
		return array_error(a, EINVAL,
				   "its offset and strides must be multiples of %" PRIu32
				   " bytes for that dtype",
				   align);
	return 0;
}

int gpushm_array_view(const struct gpushm_array *a, struct gpushm_dtype dtype,
		      struct gpushm_array **ret)
{
	struct array_layout l;
	int r = array_check(a);

	if (r < 0)
		return r;
	l = a->layout;
	l.dtype = dtype_from_public(dtype);
	if (!dtype_valid(l.dtype))
		return array_error(a, EINVAL, "no such dtype to view it as");
	if (dtype_packed(a->layout.dtype) || dtype_packed(l.dtype))
		return array_error(a, ENOTSUP, "elements narrower than a byte have no other view");

	if (array_itemsize(&a->layout) != array_itemsize(&l))
		r = rescale(a, &l, array_itemsize(&a->layout), array_itemsize(&l));
	if (r == 0)
		r = check_alignment(a, &l);
	return r < 0 ? r : array_derive(a, &l, ret);
}
