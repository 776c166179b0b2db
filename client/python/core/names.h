/* SPDX-License-Identifier: MIT
 *
 * What can be done with a name, and to the daemon: wait, unlink, clean, flush.
 */
#ifndef GPUSHM_PYTHON_NAMES_H
#define GPUSHM_PYTHON_NAMES_H

#include "client/python/core/object.h"

/* wait, unlink, clean, flush: see connection_init(). */
extern PyMethodDef names_verbs[];

#endif
