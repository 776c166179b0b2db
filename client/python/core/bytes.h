/* SPDX-License-Identifier: MIT
 *
 * Python's buffer protocol, for arrays that the CPU can reach, and the memory that NumPy gets.
 */
#ifndef GPUSHM_PYTHON_BYTES_H
#define GPUSHM_PYTHON_BYTES_H

#include "client/python/core/array.h"

/* bf_getbuffer, bf_releasebuffer. */
int bytes_get(PyObject *o, Py_buffer *view, int flags);
void bytes_release(PyObject *o, Py_buffer *view);

/* _span(): (an Array of uint8 over all the bytes that the array spans, where its first element
 * begins in them). Whoever wraps it stands for the memory: see array::span. */
PyObject *bytes_span(PyObject *o, PyObject *unused);

#endif
