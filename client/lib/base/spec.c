/* SPDX-License-Identifier: MIT
 *
 * What a caller says an element or an array is: the public dtype functions, and the array specs
 * that describe, layout and array_over take. proto/dtype.c and proto/table.h check them here,
 * without a round trip, as the daemon does and with the same texts. This file converts between the
 * public structs and those of proto/, and lays arrays out one after the other.
 */
#include "client/lib/base/spec.h"

#include "client/lib/base/error.h"
#include "proto/base/sized.h"

#include <errno.h>
#include <string.h>

/* ---- element types ---- */

int gpushm_dtype_parse(const char *name, struct gpushm_dtype *ret)
{
	struct dtype t;

	if (!name)
		return error_set(EINVAL, "a dtype needs a name");
	if (dtype_parse(name, &t) < 0 && dtype_from_typestr(name, &t) < 0)
		return error_set(EINVAL,
				 "dtype \"%s\" is not known: a name like float32, bfloat16, "
				 "float8_e4m3fn, record40, or a NumPy typestr like \"<f4\"",
				 name);
	*ret = dtype_to_public(t);
	return 0;
}

static int check_dtype(struct gpushm_dtype t)
{
	if (!dtype_valid(dtype_from_public(t)))
		return error_set(EINVAL, "no dtype has code %u, %u bits, %u lanes and itemsize %u",
				 t.code, t.bits, t.lanes, t.itemsize);
	return 0;
}

int gpushm_dtype_format(struct gpushm_dtype t, char *buf, size_t size)
{
	int r = check_dtype(t);

	if (r < 0)
		return r;
	if (!buf || size == 0)
		return error_set(EINVAL, "a dtype's name needs a buffer of 32 bytes");
	dtype_format(dtype_from_public(t), buf, size);
	return 0;
}

int gpushm_dtype_typestr(struct gpushm_dtype t, char *buf, size_t size)
{
	char name[32];
	int r = check_dtype(t);

	if (r < 0)
		return r;
	if (!buf || size < 16)
		return error_set(EINVAL, "a typestr needs a buffer of 16 bytes");
	r = dtype_to_typestr(dtype_from_public(t), buf, size);
	if (r < 0) {
		dtype_format(dtype_from_public(t), name, sizeof(name));
		return error_set(-r, "NumPy has no typestr for %s", name);
	}
	return 0;
}

uint64_t gpushm_dtype_bits(struct gpushm_dtype t)
{
	return check_dtype(t) < 0 ? 0 : dtype_bits(dtype_from_public(t));
}

/* ---- arrays ---- */

/* The members of the first version: gpushm_layout() writes to the offset. */
#define SPEC_MIN offsetof(struct gpushm_array_spec, strides)

int specs_check(const struct gpushm_array_spec *specs, size_t n)
{
	const char *wrong;
	int r = n > 0 ? error_null(specs, "list of arrays") : 0;

	if (r < 0 || n == 0)
		return r;
	wrong = specs->struct_size < SPEC_MIN ? "struct_size is not set"
					      : sized_check_all(specs, n, sizeof(*specs));
	return error_wrong("the arrays' specs", wrong);
}

struct gpushm_array_spec spec_at(const struct gpushm_array_spec *specs, size_t i)
{
	struct gpushm_array_spec spec;

	sized_read(sized_at(specs, i), &spec, sizeof(spec));
	return spec;
}

static int check_text(const char *text, size_t max, const char *what, size_t *ret)
{
	size_t n = text ? strnlen(text, max + 1) : 0;

	if (n > max)
		return error_set(EINVAL, "an array's %s has at most %zu bytes", what, max);
	*ret = n;
	return 0;
}

int spec_to_table(const struct gpushm_array_spec *spec, struct table_array *ret)
{
	struct table_array a = { .name = spec->name ? spec->name : "",
				 .dtype = dtype_from_public(spec->dtype),
				 .descr = spec->descr,
				 .has_strides = spec->strides != NULL,
				 .offset = spec->offset };

	if (check_text(spec->name, ARRAY_NAME_MAX, "name", &a.name_len) < 0 ||
	    check_text(spec->descr, DESCR_MAX, "descr", &a.descr_len) < 0)
		return -EINVAL;
	if (a.descr_len == 0)
		a.descr = NULL;
	if (spec->ndim < 0 || spec->ndim > GPUSHM_MAX_NDIM)
		return error_set(EINVAL, "array \"%s\": %d dimensions; 0 to %d are possible",
				 a.name, spec->ndim, GPUSHM_MAX_NDIM);
	if (spec->ndim > 0 && !spec->shape)
		return error_set(EINVAL, "array \"%s\": %d dimensions and no shape", a.name,
				 spec->ndim);
	a.ndim = (uint32_t)spec->ndim;
	for (int i = 0; i < spec->ndim; i++) {
		if (spec->shape[i] < 0)
			return error_set(EINVAL, "array \"%s\": axis %d has a negative length",
					 a.name, i);
		a.shape[i] = (uint64_t)spec->shape[i];
		a.strides[i] = spec->strides ? spec->strides[i] : 0;
	}
	*ret = a;
	return 0;
}

/* Bytes that the array touches, and how far the lowest lies before its element [0, 0, ...]. */
static int span(const struct gpushm_array_spec *spec, uint64_t *ret_before, uint64_t *ret_bytes)
{
	struct table_array a;
	int r = spec_to_table(spec, &a);

	if (r < 0)
		return r;
	if (!dtype_valid(a.dtype))
		return error_set(EINVAL, "array \"%s\": no such dtype", a.name);
	if (!a.has_strides)
		r = table_c_strides(a.dtype, a.ndim, a.shape, a.strides);
	a.has_strides = true;
	if (r == 0)
		r = table_span(&a, ret_before, ret_bytes);
	return r < 0 ? error_set(EOVERFLOW, "array \"%s\": its size overflows", a.name) : 0;
}

static int place(const struct gpushm_array_spec *spec, uint64_t end, uint64_t *ret_offset,
		 uint64_t *ret_end)
{
	uint64_t before, bytes, start;
	bool overflow;
	int r = span(spec, &before, &bytes);

	if (r < 0)
		return r;
	/* With negative strides element [0, 0, ...] is not the lowest; the lowest is aligned. */
	overflow = __builtin_add_overflow(end, ARRAY_ALIGN - 1, &start);
	start &= ~(uint64_t)(ARRAY_ALIGN - 1);
	if (overflow || __builtin_add_overflow(start, bytes, ret_end))
		return error_set(EOVERFLOW, "array \"%s\": the layout's size overflows",
				 spec->name ? spec->name : "");
	*ret_offset = start + before;
	return 0;
}

int gpushm_layout(struct gpushm_array_spec *specs, size_t n, uint64_t *ret_bytes)
{
	uint64_t end = 0, offset = 0;
	int r = specs_check(specs, n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct gpushm_array_spec spec = spec_at(specs, i);

		r = place(&spec, end, &offset, &end);
		if (r < 0)
			return r;
		((struct gpushm_array_spec *)sized_at(specs, i))->offset = offset;
	}
	/* A buffer has at least one byte, even if none of its arrays has. */
	*ret_bytes = end ? end : 1;
	return 0;
}
