/* SPDX-License-Identifier: MIT
 *
 * The CUDA Array Interface, version 3, of arrays that a GPU reaches.
 */
#ifndef GPUSHM_PYTHON_CAI_H
#define GPUSHM_PYTHON_CAI_H

#include "client/python/core/array.h"

/* The getter of __cuda_array_interface__. Raises AttributeError where there is none, so that
 * hasattr() tells the truth. */
PyObject *cai_get(PyObject *o, void *unused);

/* "<f4", or None. */
PyObject *cai_typestr(PyObject *o, void *unused);

#endif
