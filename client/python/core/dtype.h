/* SPDX-License-Identifier: MIT
 *
 * Types of elements as people name them: libgpushm's and NumPy's names are known here, all else
 * (NumPy's own objects, Python's types, torch's) is translated by gpushm._dtype.
 */
#ifndef GPUSHM_PYTHON_DTYPE_H
#define GPUSHM_PYTHON_DTYPE_H

#include "client/python/core/object.h"

struct dtype {
	struct gpushm_dtype type;
	PyObject *descr;   /* a str, owned: of a record; NULL */
	const char *words; /* descr's; NULL */
};

/* 0; -1: raised. The caller ends it with dtype_done(). */
int dtype_from(PyObject *o, struct dtype *ret);
void dtype_done(struct dtype *d);

/* "float32". NULL: raised. */
PyObject *dtype_name(struct gpushm_dtype t);

#endif
