/* SPDX-License-Identifier: MIT
 *
 * Arrays: found in a buffer's table by name or by position, or laid over its bytes by a caller's
 * spec; then asked, and freed. An array owns its name, its descr and one count on its buffer; the
 * memory is the map's. It never changes, so that any thread may use it without a lock. Whether it
 * may be written to can change, and is asked of the buffer each time.
 *
 * proto/table.h decides what an array of this buffer may be: it checks each entry that it returns,
 * and a caller's spec as DESCRIBE does. During a lookup the buffer's lock is held, because the
 * table of a buffer that is being filled may grow.
 */
#include "client/lib/array/array.h"

#include "client/gpushm_private.h"
#include "client/lib/base/spec.h"
#include "client/lib/buffer/buffer.h"
#include "proto/base/own.h"

#include <errno.h>
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

/* Axes longer than 1: a packed array with at most one of them is in both orders. */
static int long_axes(const struct array_layout *l)
{
	int n = 0;

	for (int i = 0; i < l->ndim; i++)
		n += l->shape[i] != 1;
	return n;
}

bool array_in_order(const struct array_layout *l, char order)
{
	bool fortran = order == 'F';
	int64_t expected = array_itemsize(l);

	if (array_elements(l->ndim, l->shape) == 0)
		return true;
	/* Packed types have no strides to compare: they are in C order. */
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

int array_c_strides(const struct array_layout *l, int64_t itemsize, int64_t *ret)
{
	for (int i = l->ndim - 1; i >= 0; i--) {
		ret[i] = itemsize;
		if (l->shape[i] > 0 && __builtin_mul_overflow(itemsize, l->shape[i], &itemsize) &&
		    i > 0)
			return -EOVERFLOW;
	}
	return 0;
}

int array_check(const struct gpushm_array *a)
{
	int r = error_null(a, "array");

	return r < 0 ? r : buffer_check_memory(a->buffer);
}

void array_copy_layout(struct array_layout *to, const struct array_layout *from, int first)
{
	size_t n = (size_t)(from->ndim - first);

	to->dtype = from->dtype;
	to->ndim = from->ndim - first;
	to->offset = from->offset;
	memcpy(to->shape, from->shape + first, n * sizeof(*to->shape));
	memcpy(to->strides, from->strides + first, n * sizeof(*to->strides));
}

static void fill_text(struct gpushm_array *a, const struct array_text *w)
{
	char *descr = a->text + w->name_len + 1;

	if (w->name_len)
		memcpy(a->text, w->name, w->name_len);
	a->text[w->name_len] = '\0';
	if (w->descr_len)
		memcpy(descr, w->descr, w->descr_len);
	descr[w->descr_len] = '\0';
	a->descr = w->descr_len ? descr : NULL;
}

int array_make(struct gpushm_buffer *b, const struct array_layout *l, const struct array_text *w,
	       struct gpushm_array **ret)
{
	int64_t size = array_elements(l->ndim, l->shape), bytes;
	struct gpushm_array *a;

	/* The table bounds the bytes that an array spans; with strides of 0 it may have more
	 * elements. */
	if (size < 0 || __builtin_mul_overflow(size, (int64_t)dtype_bits(l->dtype), &bytes))
		return error_set(ERANGE, "array \"%.*s\": its elements have more than 2^63-1 bits",
				 (int)w->name_len, w->name_len ? w->name : "");
	/* One allocation, with copies of the caller's or the table's texts. */
	a = malloc(sizeof(*a) + w->name_len + 1 + w->descr_len + 1);
	if (!a)
		return error_set(ENOMEM, "no memory for an array");

	fill_text(a, w);
	array_copy_layout(&a->layout, l, 0);
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
	struct array_text w = { .name = a->text, .name_len = strlen(a->text) };

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

/* ---- lookup ---- */

static int array_from_table(struct gpushm_buffer *b, const struct table_array *t,
			    struct gpushm_array **ret)
{
	struct array_layout l = { .dtype = t->dtype, .ndim = (int)t->ndim, .offset = t->offset };
	struct array_text w = { t->name, t->descr, t->name_len, t->descr_len };

	for (uint32_t i = 0; i < t->ndim; i++) {
		l.shape[i] = (int64_t)t->shape[i];
		l.strides[i] = t->strides[i];
	}
	return array_make(b, &l, &w, ret);
}

static int malformed(const struct gpushm_buffer *b)
{
	return error_set(EPROTO,
			 "buffer \"%s\": what the daemon's table says of an array is malformed",
			 b->name);
}

static int get(struct gpushm_buffer *b, bool whole, const char *name, struct gpushm_array **ret)
{
	const struct table_view *v;
	struct table_array t;
	int r = buffer_table(b, whole, &v);

	if (r < 0)
		return r;
	r = table_view_find(v, name, strlen(name), &t);
	if (r == -ENOENT)
		error_set(ENOENT, "buffer \"%s\" has no array called \"%s\"", b->name, name);
	else if (r != -EAGAIN)
		r = r < 0 ? malformed(b) : array_from_table(b, &t, ret);
	buffer_table_done(b);
	return r;
}

int gpushm_array_get(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret)
{
	int r = buffer_check_memory(b);

	if (r == 0 && !name)
		r = buffer_error(b, EINVAL, "an array needs a name");
	if (r == 0)
		r = get(b, false, name, ret);
	/* The fields of a record are read from a table in memory only. */
	return r == -EAGAIN ? get(b, true, name, ret) : r;
}

int gpushm_array_at(struct gpushm_buffer *b, size_t index, struct gpushm_array **ret)
{
	const struct table_view *v;
	struct table_array t;
	int r = buffer_check_memory(b);

	if (r == 0)
		r = buffer_table(b, true, &v);
	if (r < 0)
		return r;

	if (index >= v->arrays)
		r = error_set(ENOENT, "buffer \"%s\" has %u arrays, and none at %zu", b->name,
			      v->arrays, index);
	else if (table_view_at(v, (uint32_t)index, &t) < 0)
		r = malformed(b);
	else
		r = array_from_table(b, &t, ret);
	buffer_table_done(b);
	return r;
}

/* The table of a buffer that is published does not change any more. */
size_t gpushm_private_array_with(const struct gpushm_buffer *b, uint64_t offset,
				 const char **ret_name)
{
	const struct table_view *v = &b->table.view;
	bool there = b->state != GPUSHM_FILLING && b->table.memory;
	uint64_t before, bytes;
	struct table_array t;

	for (uint32_t i = 0; there && i < v->arrays; i++)
		if (table_view_at(v, i, &t) == 0 && table_span(&t, &before, &bytes) == 0 &&
		    offset - (t.offset - before) < bytes) {
			*ret_name = t.name;
			return t.name_len;
		}
	return 0;
}

int array_over(struct gpushm_buffer *b, const struct gpushm_array_spec *spec, const char *what,
	       struct gpushm_array **ret)
{
	struct table_array t;
	struct fault err;
	int r = spec_to_table(spec, &t);

	if (r < 0)
		return r;
	r = table_check(&t, b->bytes, &t, &err);
	return r < 0 ? error_set(-r, "%s: %s", what, err.text) : array_from_table(b, &t, ret);
}

int gpushm_array_over(struct gpushm_buffer *b, const struct gpushm_array_spec *spec,
		      struct gpushm_array **ret)
{
	struct gpushm_array_spec nameless;
	int r = buffer_check_memory(b);

	if (r == 0)
		r = specs_check(spec, 1);
	if (r < 0)
		return r;
	nameless = spec_at(spec, 0);
	nameless.name = NULL;
	return array_over(b, &nameless, "spec 0", ret);
}

/* ---- getters ---- */

struct gpushm_buffer *gpushm_array_buffer(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? NULL : a->buffer;
}

const char *gpushm_array_name(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? NULL : a->text;
}

struct gpushm_dtype gpushm_array_dtype(const struct gpushm_array *a)
{
	if (error_null(a, "array") < 0)
		return (struct gpushm_dtype){ 0 };
	return dtype_to_public(a->layout.dtype);
}

const char *gpushm_array_descr(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? NULL : a->descr;
}

int gpushm_array_ndim(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? -EINVAL : a->layout.ndim;
}

int64_t gpushm_array_dim(const struct gpushm_array *a, int axis)
{
	if (error_null(a, "array") < 0)
		return -EINVAL;
	return axis < 0 || axis >= a->layout.ndim ? -1 : a->layout.shape[axis];
}

const int64_t *gpushm_array_shape(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? NULL : a->layout.shape;
}

const int64_t *gpushm_array_strides(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? NULL : a->layout.strides;
}

int64_t gpushm_array_size(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? -EINVAL : a->size;
}

uint64_t gpushm_array_nbytes(const struct gpushm_array *a)
{
	if (error_null(a, "array") < 0)
		return 0;
	return ((uint64_t)a->size * dtype_bits(a->layout.dtype) + 7) / 8;
}

uint64_t gpushm_array_offset(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? 0 : a->layout.offset;
}

int gpushm_array_read_only(const struct gpushm_array *a)
{
	if (error_null(a, "array") < 0)
		return -EINVAL;
	return gpushm_buffer_access(a->buffer) != GPUSHM_WRITE;
}

/* An array without elements has an address, too, as in NumPy; it may be the buffer's end. */
static void *at_offset(const struct gpushm_array *a, void *start)
{
	return start ? (char *)start + a->layout.offset : NULL;
}

void *gpushm_array_device_ptr(const struct gpushm_array *a)
{
	if (error_null(a, "array") < 0)
		return NULL;
	return at_offset(a, gpushm_buffer_device_ptr(a->buffer));
}

void *gpushm_array_host_ptr(const struct gpushm_array *a)
{
	if (error_null(a, "array") < 0)
		return NULL;
	return at_offset(a, gpushm_buffer_host_ptr(a->buffer));
}

int gpushm_array_is_c_contiguous(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? -EINVAL : array_in_order(&a->layout, 'C');
}

int gpushm_array_is_f_contiguous(const struct gpushm_array *a)
{
	return error_null(a, "array") < 0 ? -EINVAL : array_in_order(&a->layout, 'F');
}
