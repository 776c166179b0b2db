/* SPDX-License-Identifier: MIT
 *
 * An array in a buffer, or a view of one: immutable once made, and a count on its buffer.
 */
#ifndef GPUSHM_CLIENT_ARRAY_ARRAY_H
#define GPUSHM_CLIENT_ARRAY_ARRAY_H

#include "client/gpushm.h"
#include "proto/dtype.h"
#include "proto/limits.h"

#include <stdbool.h>

/* Where the elements are. A stride of an axis of length 1, or of an array without elements, means
 * nothing and may be any number: no arithmetic on it. */
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

/* Elements, -1 where they are more than int64_t holds. A length of 0 anywhere: 0. */
int64_t array_elements(int ndim, const int64_t *shape);

/* NumPy's rule: axes of length 1 do not count, and no elements are in either order. */
bool array_c_order(const struct array_layout *l);
bool array_f_order(const struct array_layout *l);

/* What an array is called; not terminated. */
struct array_words {
	const char *name, *descr;
	size_t name_len, descr_len;
};

/* An array over b's memory, where the layout has been checked against it. Copies the words and
 * counts itself on b. 0, -ENOMEM; -ERANGE where its bits can't be counted. */
int array_make(struct gpushm_buffer *b, const struct array_layout *l, const struct array_words *w,
	       struct gpushm_array **ret);

/* A view of a's memory with a layout of its own, which lies within a's. Keeps the name, and the
 * descr where the dtype is the same. 0 or -ENOMEM. */
int array_derive(const struct gpushm_array *a, const struct array_layout *l,
		 struct gpushm_array **ret);

/* 0, or -ECHILD with gpushm_error() set. */
int array_check(const struct gpushm_array *a);

#endif
