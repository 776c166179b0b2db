/* SPDX-License-Identifier: MIT
 *
 * gpushm.Array: an array of a buffer, or a view of one. What open() and create() return is a
 * buffer's owner: to close it is to close the buffer.
 */
#ifndef GPUSHM_PYTHON_ARRAY_H
#define GPUSHM_PYTHON_ARRAY_H

#include "client/python/core/buffer.h"

struct array {
	PyObject_HEAD
	PyObject *weakrefs;
	struct gpushm_array *array;    /* owned; NULL: closed */
	struct buffer *buffer;	       /* a reference */
	struct array *next, **place;   /* buffer::arrays */
	unsigned memoryviews;	       /* of it that are alive */
	unsigned writable_memoryviews; /* of them */
	unsigned calls;		       /* that run without the GIL and use it */
	bool span;		       /* it stands for memory that NumPy has */
	bool span_writable;
};

/* Takes *a over, an array of b's, freeing it where this fails. NULL: raised. */
struct array *array_new(struct buffer *b, struct gpushm_array *a);

/* Makes it the one that people hold: see buffer::owner. */
void array_own_buffer(struct array *self);

/* Whether it is open; else raises. */
bool array_is_open(const struct array *self);

/* Between the two it can't be closed, by any thread: around calls without the GIL. */
void array_hold(struct array *self);
void array_release(struct array *self);

/* Frees what it has of the library; the buffer's list forgets it. No memoryview or call may use
 * it. */
void array_drop(struct array *self);

/* close() and the end of a with block. 0; -1: raised. */
int array_close(struct array *self);

/* Bytes of an element; 0 for types narrower than a byte. */
Py_ssize_t array_itemsize(const struct array *self);

/* Bytes from element [0, 0, ...] down to the lowest byte and up past the highest one that belong to
 * elements; both 0 where there are none. */
void array_span(const struct array *self, uint64_t *ret_below, uint64_t *ret_above);

/* Of an open one. */
bool array_is_writable(const struct array *self);

/* tp_dealloc. */
void array_dealloc(PyObject *o);

#endif
