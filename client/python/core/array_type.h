/* SPDX-License-Identifier: MIT
 *
 * The type gpushm.Array: what Python sees of an array.
 */
#ifndef GPUSHM_PYTHON_ARRAY_TYPE_H
#define GPUSHM_PYTHON_ARRAY_TYPE_H

#include "client/python/core/object.h"

/* 0; -1: raised. */
int array_type_init(PyObject *module);

#endif
