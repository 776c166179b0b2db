/* SPDX-License-Identifier: MIT
 *
 * Copies between arrays and what has the buffer protocol. What is more comfortable (NumPy's
 * broadcasting, dtypes that the buffer protocol does not know) is made of these in Python.
 */
#ifndef GPUSHM_PYTHON_COPY_H
#define GPUSHM_PYTHON_COPY_H

#include "client/python/core/array.h"

/* _read_into(out, stream), _write_from(data, stream). */
PyObject *copy_read_into(PyObject *o, PyObject *args);
PyObject *copy_write_from(PyObject *o, PyObject *args);

#endif
