/* SPDX-License-Identifier: MIT
 *
 * Views that regroup axes: reshape and ravel, where they need no copy.
 *
 * A run is a sequence of axes that lie in memory as one longer axis would. A new axis has one
 * stride, so it must lie within a run; if all do, the reshape is possible. So this takes the old
 * runs from the innermost outwards, and cuts the new axes from them. Fortran order is the same with
 * the axes of both sides reversed.
 *
 * Packed types have strides of 0 and are in C order. They are reshaped as if an element were a
 * byte, as long as the result is in C order.
 */
#include "client/gpushm_array.h"
#include "client/lib/array/array.h"

#include "client/lib/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The rest of a run: elements, and bytes from one to the next. */
struct run {
	int64_t left, stride;
};

/* Takes the next run of `from`, from *axis outwards. */
static void take_run(const struct array_layout *from, int *axis, struct run *run)
{
	run->left = 1;
	for (; *axis >= 0; (*axis)--) {
		int64_t n = from->shape[*axis], stride = from->strides[*axis];

		if (n == 1)
			continue;
		if (run->left == 1)
			run->stride = stride;
		else if (stride != run->stride * run->left)
			return;
		run->left *= n;
	}
}

/* Finds to's strides, in C order. False: it would need a copy. Both have equally many elements, at
 * least one. An axis of length 1 gets the stride that it would have in C order. */
static bool cut_runs(const struct array_layout *from, struct array_layout *to, int64_t itemsize)
{
	struct run run = { .left = 1, .stride = itemsize };
	int axis = from->ndim - 1;

	for (int i = to->ndim - 1; i >= 0; i--) {
		int64_t n = to->shape[i];

		if (n > 1 && run.left == 1)
			take_run(from, &axis, &run);
		if (run.left % n != 0)
			return false;
		to->strides[i] = run.stride;
		run.left /= n;
		run.stride *= n;
	}
	return true;
}

static void reverse(struct array_layout *l)
{
	for (int i = 0, j = l->ndim - 1; i < j; i++, j--) {
		int64_t shape = l->shape[i], stride = l->strides[i];

		l->shape[i] = l->shape[j];
		l->strides[i] = l->strides[j];
		l->shape[j] = shape;
		l->strides[j] = stride;
	}
}

/* Changes *from, too. */
static bool restride(struct array_layout *from, struct array_layout *to, char order)
{
	int64_t itemsize = array_itemsize(from);
	bool possible;

	if (order == 'F') {
		reverse(from);
		reverse(to);
	}
	possible = cut_runs(from, to, itemsize);
	if (order == 'F')
		reverse(to);
	return possible;
}

static bool restride_packed(struct array_layout *from, struct array_layout *to, char order)
{
	struct dtype packed = to->dtype;
	bool possible;

	from->dtype = to->dtype = (struct dtype){ .code = DTYPE_UINT, .bits = 8, .lanes = 1 };
	possible = array_c_strides(from, 1, from->strides) == 0 && restride(from, to, order) &&
		   array_in_order(to, 'C');
	to->dtype = packed;
	memset(to->strides, 0, sizeof(to->strides));
	return possible;
}

/* Replaces -1 by the missing length, and checks the number of elements. */
static int complete_shape(const struct gpushm_array *a, struct array_layout *l)
{
	int unknown = -1;
	int64_t n;

	for (int i = 0; i < l->ndim; i++) {
		if (l->shape[i] < -1 || (l->shape[i] == -1 && unknown >= 0))
			return array_error(a, EINVAL, "axis %d of the new shape is %" PRId64, i,
					   l->shape[i]);
		if (l->shape[i] == -1) {
			unknown = i;
			l->shape[i] = 1;
		}
	}
	n = array_elements(l->ndim, l->shape);
	if (unknown >= 0 && n > 0 && a->size % n == 0) {
		l->shape[unknown] = a->size / n;
		return 0;
	}
	if (unknown >= 0 || n != a->size)
		return array_error(a, EINVAL, "its %" PRId64 " elements do not fill the new shape",
				   a->size);
	return 0;
}

static int new_strides(const struct gpushm_array *a, struct array_layout *l, char order)
{
	struct array_layout from = a->layout;
	bool possible;

	if (a->size == 0) {
		if (order == 'F')
			reverse(l);
		possible = array_c_strides(l, array_itemsize(l), l->strides) == 0;
		if (order == 'F')
			reverse(l);
		return possible ? 0 : array_error(a, EINVAL, "the new shape is too large");
	}
	possible = dtype_packed(l->dtype) ? restride_packed(&from, l, order)
					  : restride(&from, l, order);
	return possible ? 0 : array_error(a, ENOTSUP, "reshape would require a copy");
}

int gpushm_array_reshape(const struct gpushm_array *a, char order, int ndim, const int64_t *shape,
			 struct gpushm_array **ret)
{
	struct array_layout l = { .ndim = ndim };
	int r = array_check(a);

	if (r < 0)
		return r;
	l.dtype = a->layout.dtype;
	l.offset = a->layout.offset;
	if (order != 'C' && order != 'F')
		return array_error(a, EINVAL, "an order is 'C' or 'F'");
	if (ndim < 0 || ndim > GPUSHM_MAX_NDIM)
		return array_error(a, EINVAL, "%d dimensions; 0 to %d are possible", ndim,
				   GPUSHM_MAX_NDIM);
	if (ndim > 0)
		memcpy(l.shape, shape, (size_t)ndim * sizeof(*shape));

	r = complete_shape(a, &l);
	if (r == 0)
		r = new_strides(a, &l, order);
	return r < 0 ? r : array_derive(a, &l, ret);
}

int gpushm_array_ravel(const struct gpushm_array *a, char order, struct gpushm_array **ret)
{
	int r = array_check(a);

	if (r < 0)
		return r;
	/* Numba's rule: a ravelled array is dense, although a[::2] could become one axis. */
	if ((order == 'C' || order == 'F') && !array_in_order(&a->layout, order))
		return error_set(
			ENOTSUP,
			"array \"%s\" is not contiguous in %c order: ravel would require a copy",
			a->text, order);
	return gpushm_array_reshape(a, order, 1, &a->size, ret);
}
