/* SPDX-License-Identifier: MIT
 *
 * Looking around: ls(), stat(), pools(), status(), and the named tuples that they return.
 */
#ifndef GPUSHM_PYTHON_LOOK_H
#define GPUSHM_PYTHON_LOOK_H

#include "client/python/core/object.h"

/* ls, stat, pools, status: see connection_init(). */
extern PyMethodDef look_verbs[];

/* Adds the named tuples' types to the module. 0; -1: raised. */
int look_init(PyObject *module);

#endif
