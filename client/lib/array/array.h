/* SPDX-License-Identifier: MIT
 *
 * An array in a buffer, or a view of one: immutable once made; it holds one reference to its
 * buffer.
 */
#pragma once

#include "client/gpushm_array.h"
#include "client/lib/base/error.h"
#include "proto/dtype.h"
#include "proto/limits.h"

#include <stdbool.h>

/* Where the elements are. The stride of an axis of length 1, and all strides of an array without
 * elements, may be any number: do no arithmetic on them. */
struct array_layout {
	struct dtype dtype;
	int ndim;
	int64_t shape[DIMENSIONS_MAX];
	int64_t strides[DIMENSIONS_MAX]; /* bytes; all 0 for packed types, which are in C order */
	uint64_t offset;		 /* bytes from the buffer's start */
};

struct gpushm_array {
	struct gpushm_buffer *buffer; /* counted by buffer_get() */
	struct array_layout layout;
	int64_t size;	   /* elements */
	const char *descr; /* in text; NULL: none */
	char text[];	   /* the name, a NUL, the descr, a NUL */
};

/* Bytes of one element; 0 for packed types. */
static inline int64_t array_itemsize(const struct array_layout *l)
{
	return dtype_packed(l->dtype) ? 0 : (int64_t)(dtype_bits(l->dtype) / 8);
}

/* The number of elements; -1 where int64_t overflows. 0 where any length is 0. */
int64_t array_elements(int ndim, const int64_t *shape);

/* NumPy's rule: axes of length 1 do not count; an array without elements is in both orders. */
bool array_in_order(const struct array_layout *l, char order); /* 'C' or 'F' */

/* Strides of C order as if an element had itemsize bytes. 0, or -EOVERFLOW. */
int array_c_strides(const struct array_layout *l, int64_t itemsize, int64_t *ret);

/* The layout without its first axes: only the axes that it has, since a frame's arrays are made for
 * each frame, and these tables have room for 32 axes. */
void array_copy_layout(struct array_layout *to, const struct array_layout *from, int first);

/* An array's texts; not terminated. */
struct array_text {
	const char *name, *descr;
	size_t name_len, descr_len;
};

/* An array over b's memory, with a layout that has been checked against b. Copies the texts and
 * counts itself on b. 0, -ENOMEM; -ERANGE where its number of bits overflows. */
int array_make(struct gpushm_buffer *b, const struct array_layout *l, const struct array_text *w,
	       struct gpushm_array **ret);

/* An array with the spec's name, checked against b as a described one; `what` begins the text of an
 * error. 0, -ERANGE, -EINVAL, -ENOMEM. */
int array_over(struct gpushm_buffer *b, const struct gpushm_array_spec *spec, const char *what,
	       struct gpushm_array **ret);

/* A view of a's memory with another layout, which lies within a's. Keeps the name, and the descr
 * where the dtype is the same. 0 or -ENOMEM. */
int array_derive(const struct gpushm_array *a, const struct array_layout *l,
		 struct gpushm_array **ret);

#define array_error(a, number, ...) error_of("array", (a)->text, number, __VA_ARGS__)

/* 0; -EINVAL for NULL, -ECHILD for the driver's memory in a forked child, with gpushm_error() set.
 */
int array_check(const struct gpushm_array *a);
