/* SPDX-License-Identifier: MIT
 *
 * The type gpushm.Buffer: what Python sees of a buffer.
 */
#ifndef GPUSHM_PYTHON_BUFFER_TYPE_H
#define GPUSHM_PYTHON_BUFFER_TYPE_H

#include "client/python/core/object.h"

/* 0; -1: raised. */
int buffer_type_init(PyObject *module);

#endif
