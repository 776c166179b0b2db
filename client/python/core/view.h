/* SPDX-License-Identifier: MIT
 *
 * Views as Python asks for them. Each is a new Array that shares the memory.
 */
#ifndef GPUSHM_PYTHON_VIEW_H
#define GPUSHM_PYTHON_VIEW_H

#include "client/python/core/array.h"

/* mp_subscript: integers, slices, Ellipsis and None, alone or in a tuple; always a view. */
PyObject *view_subscript(PyObject *o, PyObject *key);

PyObject *view_reshape(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *view_ravel(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *view_transpose(PyObject *o, PyObject *args);
PyObject *view_split(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *view_as(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *view_transposed(PyObject *o, void *unused); /* the getter of T */

/* An array over the bytes of a buffer, which is open, that nobody described. */
PyObject *view_over(struct buffer *b, PyObject *dtype, PyObject *shape, PyObject *strides,
		    uint64_t offset);

#endif
