/* SPDX-License-Identifier: MIT
 *
 * Layouts of many arrays: what create_many() and stream() get as a dict.
 */
#pragma once

#include "client/python/core/args.h"

struct layouts {
	size_t n;
	struct layout *layouts;		 /* owned */
	struct gpushm_array_spec *specs; /* theirs, in a row; owned */
};

/* Reads the value of the i-th item. The layout's name is set afterwards. */
typedef int layout_fn(PyObject *items, Py_ssize_t i, const char *name, PyObject *value,
		      struct layout *ret);

/* A value is (shape, dtype), or an object that has both; a list or a number is replaced by an
 * array. */
layout_fn layout_from_value;

/* `items` is a list of (name, value), and keeps the names. The caller ends *ret with
 * layouts_done(), also after a failure. */
int layouts_from(PyObject *items, layout_fn *read, struct layouts *ret);
void layouts_done(struct layouts *l);
