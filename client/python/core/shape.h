/* SPDX-License-Identifier: MIT
 *
 * Shapes, strides and other rows of numbers, from Python and to it.
 */
#ifndef GPUSHM_PYTHON_SHAPE_H
#define GPUSHM_PYTHON_SHAPE_H

#include "client/python/core/object.h"

struct shape {
	int ndim;
	int64_t dims[GPUSHM_MAX_NDIM];
};

/* A sequence of integers, or one integer alone; `what` is for the message. 0; -1: raised. */
int shape_from(PyObject *o, const char *what, struct shape *ret);

/* Strides in bytes of elements that lie together in order 'C' or 'F'. What overflows is the
 * library's to find: such numbers are cut. */
void shape_strides(const struct shape *shape, int64_t itemsize, char order, struct shape *ret);

/* 'C' or 'F' from "C" or "F"; 0: raised. */
char shape_order(const char *word);

/* A tuple of n integers. NULL: raised. */
PyObject *shape_tuple(const int64_t *dims, int n);

#endif
