/* SPDX-License-Identifier: MIT
 *
 * Cleanup that waits: libgpushm's sections and limits as functions of the module. The context
 * manager is made of them in Python.
 */
#ifndef GPUSHM_PYTHON_DEFER_H
#define GPUSHM_PYTHON_DEFER_H

#include "client/python/core/object.h"

extern PyMethodDef defer_functions[];

#endif
