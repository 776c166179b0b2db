/* SPDX-License-Identifier: MIT
 *
 * libgpushm's structs as named tuples of Python.
 */
#ifndef GPUSHM_PYTHON_RECORD_H
#define GPUSHM_PYTHON_RECORD_H

#include "client/python/core/object.h"

/* Adds the types to the module. 0; -1: raised. */
int record_init(PyObject *module);

/* Each a new object. NULL: raised. */
PyObject *record_stat(const struct gpushm_stat *s);
PyObject *record_pool(const struct gpushm_pool *p);
PyObject *record_status(const struct gpushm_status *s);

#endif
