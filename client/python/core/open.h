/* SPDX-License-Identifier: MIT
 *
 * open() and open_many(): attaching to what others have published.
 */
#ifndef GPUSHM_PYTHON_OPEN_H
#define GPUSHM_PYTHON_OPEN_H

#include "client/python/core/object.h"

/* open, open_many: see connection_init(). */
extern PyMethodDef open_verbs[];

#endif
