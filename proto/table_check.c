/* SPDX-License-Identifier: MIT
 *
 * Whether a buffer can hold an array. The daemon checks each array before it adds it, and a reader
 * checks each array that it looks up again, so that a broken daemon can't lead a client outside of
 * its mapping.
 *
 * An array may overlap others, and may overlap itself (strides of 0 are how NumPy broadcasts). It
 * must stay within the buffer, its elements must be aligned, and no product may overflow. Every
 * refusal names the array and what is allowed.
 */
#include "proto/table_image.h"

#include "proto/base/own.h"
#include "proto/name.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- arithmetic ---- */

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

/* ---- the check ---- */

/* Bytes of a name in a text; the rest of the text must fit, too. */
#define SHOWN_MAX 48u

int table_refuse(struct fault *err, enum code code, struct table_subject subject,
		 const char *format, ...)
{
	bool cut = subject.name_len > SHOWN_MAX;
	size_t shown = cut ? name_cut(subject.name, SHOWN_MAX) : subject.name_len;
	char text[sizeof(err->text)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return fault(err, code, "%s \"%.*s%s\": %s", subject.kind, (int)shown,
		     shown > 0 ? subject.name : "", cut ? "..." : "", text);
}

/* All other refusals in this file are about an array, too. */
#define refuse(what, ...)                                                                \
	table_refuse(err, what, (struct table_subject){ "array", a->name, a->name_len }, \
		     __VA_ARGS__)

static int check_name(const struct table_array *a, struct fault *err)
{
	const char *wrong = name_check_array(a->name, a->name_len);

	/* A wrong name is not repeated: it may have control characters for a terminal. */
	if (wrong)
		return table_refuse(err, CODE_NAME, (struct table_subject){ "array", "?", 1 },
				    "its name: %s", wrong);
	return 0;
}

static int check_descr(const struct table_array *a, struct fault *err)
{
	const char *wrong;

	if (a->descr_len == 0)
		return 0;
	if (a->dtype.code != DTYPE_RECORD)
		return refuse(CODE_DTYPE, "it has a descr, which is for records only");
	if (a->descr_len > DESCR_MAX)
		return refuse(CODE_LIMIT, "its descr has %zu bytes; at most %u are allowed",
			      a->descr_len, DESCR_MAX);

	wrong = name_check_text(a->descr, a->descr_len);
	return wrong ? refuse(CODE_DTYPE, "its descr: %s", wrong) : 0;
}

static int check_dtype(const struct table_array *a, struct fault *err)
{
	char type[64];

	if (dtype_valid(a->dtype))
		return check_descr(a, err);
	dtype_format(a->dtype, type, sizeof(type));
	return refuse(CODE_DTYPE, "there is no such dtype: %s", type);
}

/* Fills in missing strides. */
static int check_shape(struct table_array *a, struct fault *err)
{
	uint64_t n;

	if (a->ndim > DIMENSIONS_MAX)
		return refuse(CODE_LAYOUT, "%" PRIu32 " dimensions; at most %u are allowed",
			      a->ndim, DIMENSIONS_MAX);
	if (table_elements(a->ndim, a->shape, &n) < 0)
		return refuse(CODE_LAYOUT, "its shape has more than 2^63-1 elements");
	if (dtype_packed(a->dtype) && a->has_strides)
		return refuse(CODE_LAYOUT, "elements of less than a byte are packed in C order; "
					   "leave the strides out");
	if (!a->has_strides && table_c_strides(a->dtype, a->ndim, a->shape, a->strides) < 0)
		return refuse(CODE_LAYOUT, "its shape has more than 2^63-1 bytes");
	return 0;
}

static int check_align(const struct table_array *a, struct fault *err)
{
	uint32_t align = dtype_align(a->dtype);

	if (a->offset % align != 0)
		return refuse(CODE_LAYOUT,
			      "offset %" PRIu64 " is no multiple of %" PRIu32
			      ", as its dtype needs; %" PRIu64 " is",
			      a->offset, align, a->offset - a->offset % align + align);
	for (uint32_t i = 0; i < a->ndim; i++)
		if (a->strides[i] % (int64_t)align != 0)
			return refuse(CODE_LAYOUT,
				      "stride %" PRId64 " is no multiple of %" PRIu32
				      ", as its dtype needs; copy it to C order first",
				      a->strides[i], align);
	return 0;
}

static int check_bounds(const struct table_array *a, uint64_t buffer_bytes, struct fault *err)
{
	uint64_t before, bytes, end;

	if (table_span(a, &before, &bytes) < 0)
		return refuse(CODE_LAYOUT, "its shape and strides span more than 2^64-1 bytes");
	if (before > a->offset)
		return refuse(CODE_LAYOUT,
			      "its strides reach %" PRIu64 " bytes before the buffer; "
			      "give it an offset of at least %" PRIu64,
			      before - a->offset, before);
	if (__builtin_add_overflow(a->offset - before, bytes, &end))
		end = UINT64_MAX;
	if (end > buffer_bytes)
		return refuse(CODE_LAYOUT,
			      "bytes %" PRIu64 "..%" PRIu64 " lie outside the buffer of %" PRIu64
			      " bytes",
			      a->offset - before, end, buffer_bytes);
	return 0;
}

int table_check(const struct table_array *a, uint64_t buffer_bytes, struct table_array *ret,
		struct fault *err)
{
	struct table_array filled;
	int r;

	r = check_name(a, err);
	if (r == 0)
		r = check_dtype(a, err);
	if (r < 0)
		return r;

	filled = *a;
	r = check_shape(&filled, err);
	if (r == 0)
		r = check_align(&filled, err);
	if (r == 0)
		r = check_bounds(&filled, buffer_bytes, err);
	if (r < 0)
		return r;

	filled.has_strides = true;
	*ret = filled;
	return 0;
}
