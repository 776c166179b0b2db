/* SPDX-License-Identifier: MIT
 *
 * Arrays: made, asked, freed. An array owns its name, its descr and one count on its buffer, and
 * nothing else: the memory is the map's. It never changes, so that any thread may use it without a
 * lock; what does change, whether it may be written to, is asked of the buffer each time.
 *
 * A layout that comes from outside (the daemon's table, a caller's spec) has been judged by
 * proto/table.c before it gets here. Arrays are looked up in find.c; views are made of them in
 * view.c and reshape.c.
 */
#include "client/array/array.h"

#include "client/base/dtype.h"
#include "client/base/error.h"
#include "client/buffer/buffer.h"
#include "proto/base/own.h"

#include <string.h>

int64_t array_elements(int ndim, const int64_t *shape)
{
	int64_t n = 1;

	for (int i = 0; i < ndim; i++)
		if (shape[i] == 0)
			return 0;
	for (int i = 0; i < ndim; i++)
		if (__builtin_mul_overflow(n, shape[i], &n))
			return -1;
	return n;
}

/* How many axes are longer than 1: a packed array of one such axis is in both orders. */
static int long_axes(const struct array_layout *l)
{
	int n = 0;

	for (int i = 0; i < l->ndim; i++)
		n += l->shape[i] != 1;
	return n;
}

static bool in_order(const struct array_layout *l, bool fortran)
{
	int64_t expected = array_itemsize(l);

	if (array_elements(l->ndim, l->shape) == 0)
		return true;
	/* They have no strides to compare: where two axes are long, C order is not Fortran's. */
	if (dtype_packed(l->dtype))
		return !fortran || long_axes(l) <= 1;
	for (int i = 0; i < l->ndim; i++) {
		int axis = fortran ? i : l->ndim - 1 - i;

		if (l->shape[axis] == 1)
			continue;
		if (l->strides[axis] != expected)
			return false;
		expected *= l->shape[axis];
	}
	return true;
}

bool array_c_order(const struct array_layout *l)
{
	return in_order(l, false);
}

bool array_f_order(const struct array_layout *l)
{
	return in_order(l, true);
}

int array_check(const struct gpushm_array *a)
{
	return buffer_check(a->buffer);
}

int array_make(struct gpushm_buffer *b, const struct array_layout *l, const struct array_words *w,
	       struct gpushm_array **ret)
{
	int64_t size = array_elements(l->ndim, l->shape), bytes;
	struct gpushm_array *a;

	/* The table bounds what an array spans; strides of 0 let its elements be more than that. */
	if (size < 0 || __builtin_mul_overflow(size, (int64_t)dtype_bits(l->dtype), &bytes))
		return error_set(ERANGE, "array \"%.*s\": its elements have more than 2^63-1 bits",
				 (int)w->name_len, w->name_len ? w->name : "");
	/* One allocation: the words are the caller's or the table's, and must outlive both. */
	a = calloc(1, sizeof(*a) + w->name_len + 1 + w->descr_len + 1);
	if (!a)
		return error_set(ENOMEM, "no memory for an array");

	if (w->name_len)
		memcpy(a->text, w->name, w->name_len);
	if (w->descr_len)
		a->descr = memcpy(a->text + w->name_len + 1, w->descr, w->descr_len);
	a->layout = *l;
	a->size = size;
	a->buffer = b;
	buffer_get(b);
	*ret = a;
	return 0;
}

static bool same_dtype(struct dtype a, struct dtype b)
{
	return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes &&
	       a.itemsize == b.itemsize;
}

int array_derive(const struct gpushm_array *a, const struct array_layout *l,
		 struct gpushm_array **ret)
{
	struct array_words w = { .name = a->text, .name_len = strlen(a->text) };

	if (a->descr && same_dtype(a->layout.dtype, l->dtype)) {
		w.descr = a->descr;
		w.descr_len = strlen(a->descr);
	}
	return array_make(a->buffer, l, &w, ret);
}

struct gpushm_array *gpushm_array_free(struct gpushm_array *a)
{
	if (!a)
		return NULL;
	buffer_put(a->buffer);
	free(a);
	return NULL;
}

/* ---- asking ---- */

struct gpushm_buffer *gpushm_array_buffer(const struct gpushm_array *a)
{
	return a->buffer;
}

const char *gpushm_array_name(const struct gpushm_array *a)
{
	return a->text;
}

struct gpushm_dtype gpushm_array_dtype(const struct gpushm_array *a)
{
	return dtype_to_public(a->layout.dtype);
}

const char *gpushm_array_descr(const struct gpushm_array *a)
{
	return a->descr;
}

int gpushm_array_ndim(const struct gpushm_array *a)
{
	return a->layout.ndim;
}

int64_t gpushm_array_dim(const struct gpushm_array *a, int axis)
{
	return axis < 0 || axis >= a->layout.ndim ? -1 : a->layout.shape[axis];
}

const int64_t *gpushm_array_shape(const struct gpushm_array *a)
{
	return a->layout.shape;
}

const int64_t *gpushm_array_strides(const struct gpushm_array *a)
{
	return a->layout.strides;
}

int64_t gpushm_array_size(const struct gpushm_array *a)
{
	return a->size;
}

uint64_t gpushm_array_nbytes(const struct gpushm_array *a)
{
	return ((uint64_t)a->size * dtype_bits(a->layout.dtype) + 7) / 8;
}

uint64_t gpushm_array_offset(const struct gpushm_array *a)
{
	return a->layout.offset;
}

int gpushm_array_read_only(const struct gpushm_array *a)
{
	return gpushm_buffer_access(a->buffer) != GPUSHM_WRITE;
}

/* An array without elements has an address, too, as in NumPy; it may be the buffer's end. */
static void *at_offset(const struct gpushm_array *a, void *start)
{
	return start ? (char *)start + a->layout.offset : NULL;
}

void *gpushm_array_device_ptr(const struct gpushm_array *a)
{
	return at_offset(a, gpushm_buffer_device_ptr(a->buffer));
}

void *gpushm_array_host_ptr(const struct gpushm_array *a)
{
	return at_offset(a, gpushm_buffer_host_ptr(a->buffer));
}

int gpushm_array_is_c_contiguous(const struct gpushm_array *a)
{
	return array_c_order(&a->layout);
}

int gpushm_array_is_f_contiguous(const struct gpushm_array *a)
{
	return array_f_order(&a->layout);
}
