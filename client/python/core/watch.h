/* SPDX-License-Identifier: MIT
 *
 * gpushm.Watch: what happens to names and buffers, as events; for a thread that waits, for poll()
 * and for asyncio.
 */
#ifndef GPUSHM_PYTHON_WATCH_H
#define GPUSHM_PYTHON_WATCH_H

#include "client/python/core/object.h"

/* watch(), as connection_init() takes it. */
extern PyMethodDef watch_verbs[];

/* Adds the types to the module. 0; -1: raised. */
int watch_init(PyObject *module);

#endif
