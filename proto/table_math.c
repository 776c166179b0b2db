/* SPDX-License-Identifier: MIT
 *
 * Arithmetic on shapes and strides. Every product and every sum is checked: shapes come from
 * untrusted clients, and 2^32 times 2^32 elements must not become an array of 0 elements.
 *
 * Sizes are uint64_t. Numbers that DLPack and NumPy keep as int64_t (a dimension, a stride, the
 * number of elements) must fit one.
 */
#include "proto/table_image.h"

#include "proto/base/own.h"

static bool is_empty(uint32_t ndim, const uint64_t *shape)
{
	for (uint32_t i = 0; i < ndim; i++)
		if (shape[i] == 0)
			return true;
	return false;
}

int table_elements(uint32_t ndim, const uint64_t *shape, uint64_t *ret)
{
	bool empty = is_empty(ndim, shape);
	uint64_t n = 1;

	for (uint32_t i = 0; i < ndim; i++) {
		if (shape[i] > INT64_MAX)
			return -EOVERFLOW;
		if (!empty && (__builtin_mul_overflow(n, shape[i], &n) || n > INT64_MAX))
			return -EOVERFLOW;
	}
	*ret = empty ? 0 : n;
	return 0;
}

/* A dimension of 0 counts as 1, as in NumPy: the strides before it are those of one element. */
int table_c_strides(struct dtype t, uint32_t ndim, const uint64_t *shape, int64_t *strides)
{
	bool packed = dtype_packed(t);
	int64_t stride = dtype_bits(t) / 8;

	for (uint32_t i = ndim; i-- > 0;) {
		strides[i] = packed ? 0 : stride;
		if (shape[i] > INT64_MAX)
			return -EOVERFLOW;
		if (!packed && i > 0 && shape[i] > 0 &&
		    __builtin_mul_overflow(stride, (int64_t)shape[i], &stride))
			return -EOVERFLOW;
	}
	return 0;
}

/* Bytes of elements without gaps between them; a last partial byte counts as one. */
static int span_dense(const struct table_array *a, uint64_t *ret_bytes)
{
	uint64_t n, bits;

	if (table_elements(a->ndim, a->shape, &n) < 0)
		return -EOVERFLOW;
	if (!dtype_packed(a->dtype))
		return __builtin_mul_overflow(n, dtype_bits(a->dtype) / 8, ret_bytes) ? -EOVERFLOW
										      : 0;
	if (__builtin_mul_overflow(n, dtype_bits(a->dtype), &bits))
		return -EOVERFLOW;
	*ret_bytes = bits / 8 + (bits % 8 != 0);
	return 0;
}

static int span_strided(const struct table_array *a, uint64_t *ret_before, uint64_t *ret_bytes)
{
	uint64_t before = 0, bytes = dtype_bits(a->dtype) / 8;

	for (uint32_t i = 0; i < a->ndim; i++) {
		bool back = a->strides[i] < 0;
		/* Unsigned, because -INT64_MIN is no int64_t. */
		uint64_t step = back ? -(uint64_t)a->strides[i] : (uint64_t)a->strides[i];
		uint64_t reach;

		if (__builtin_mul_overflow(a->shape[i] - 1, step, &reach) ||
		    __builtin_add_overflow(bytes, reach, &bytes))
			return -EOVERFLOW;
		before += back ? reach : 0; /* no overflow: it is a part of bytes */
	}
	*ret_before = before;
	*ret_bytes = bytes;
	return 0;
}

int table_span(const struct table_array *a, uint64_t *ret_before, uint64_t *ret_bytes)
{
	uint64_t n, bytes;

	if (table_elements(a->ndim, a->shape, &n) < 0)
		return -EOVERFLOW;
	if (n > 0 && a->has_strides && !dtype_packed(a->dtype))
		return span_strided(a, ret_before, ret_bytes);
	if (span_dense(a, &bytes) < 0)
		return -EOVERFLOW;

	*ret_before = 0;
	*ret_bytes = bytes;
	return 0;
}
