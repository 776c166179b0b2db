/* SPDX-License-Identifier: MIT
 *
 * DLPack's Python side (data-apis.org/array-api, dlpack's python_spec): __dlpack__ and
 * __dlpack_device__.
 */
#ifndef GPUSHM_PYTHON_DLPACK_H
#define GPUSHM_PYTHON_DLPACK_H

#include "client/python/core/array.h"

PyObject *dlpack_export(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *dlpack_device(PyObject *o, PyObject *unused);

#endif
