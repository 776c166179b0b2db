/* SPDX-License-Identifier: MIT
 *
 * create() and create_many(): buffers made and described.
 */
#ifndef GPUSHM_PYTHON_CREATE_H
#define GPUSHM_PYTHON_CREATE_H

#include "client/python/core/object.h"

/* create, create_many: see connection_init(). */
extern PyMethodDef create_verbs[];

#endif
