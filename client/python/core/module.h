/* SPDX-License-Identifier: MIT
 *
 * What module.c puts together: functions of the module, and types. A function of the first four
 * tables is also a method of Connection; called as a function of the module, its self is the
 * module.
 */
#pragma once

#include "client/python/core/object.h"

extern PyMethodDef create_functions[]; /* create, create_many */
extern PyMethodDef open_functions[];   /* open, open_many */
extern PyMethodDef query_functions[];  /* wait, unlink, clean, flush, ls, stat, pools, status */
extern PyMethodDef watch_functions[];  /* watch */

int buffer_type_init(PyObject *module);
int array_type_init(PyObject *module);
int watch_init(PyObject *module);
