/* SPDX-License-Identifier: MIT
 *
 * Layouts of many arrays: what create_many(), stream() and Buffer.describe() get as a dict.
 */
#pragma once

#include "client/python/core/args.h"
#include "client/python/core/buffer.h"

struct layouts {
	size_t n;
	struct layout *layouts;		 /* owned */
	struct gpushm_array_spec *specs; /* theirs, in a row; owned */
};

/* For "O&": a list of (name, (shape, dtype, strides or None, offset, order if not C)), which keeps
 * the names. The caller ends *ret with layouts_done(), also after a failure. */
int layouts_arg(PyObject *items, void *ret);
void layouts_done(struct layouts *l);

/* The method describe(arrays): arrays that are added to a buffer after it was created. */
PyObject *pybuffer_describe(PyObject *o, PyObject *arrays);
