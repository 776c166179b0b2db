/* SPDX-License-Identifier: MIT
 *
 * The package's exceptions: what libgpushm returned becomes one of them, with gpushm_error() as its
 * text. All of them are OSErrors; most are what Python raises for such a thing, too.
 */
#ifndef GPUSHM_PYTHON_ERROR_H
#define GPUSHM_PYTHON_ERROR_H

#include "client/python/core/object.h"

/* In the order of the table in error.c. */
enum error_kind {
	ERROR_BASE,
	ERROR_NOT_FOUND,
	ERROR_EXISTS,
	ERROR_ACCESS,
	ERROR_TIMEOUT,
	ERROR_NOT_PUBLISHED,
	ERROR_READ_ONLY,
	ERROR_DIRTY,
	ERROR_POOL_FULL,
	ERROR_TOO_LARGE,
	ERROR_LIMIT,
	ERROR_DEVICE,
	ERROR_DRIVER,
	ERROR_DAEMON,
	ERROR_FORK,
	ERROR_IN_USE,
	ERROR_STATE,
	ERROR_ARGUMENT,
	ERROR_LAYOUT,
	ERROR_UNSUPPORTED,
	ERROR_NO_MEMORY,
	ERROR_KINDS
};

/* Makes the exceptions and adds them to the module. 0; -1: raised. */
int error_init(PyObject *module);

/* Raises what this thread's last call of libgpushm returned, unless something is raised already.
 * Nothing of libgpushm may have been called in between. Returns NULL, so that a check is one line.
 */
void *error_raise(int r);

/* The same as that kind, whatever the number says. */
void *error_raise_as(enum error_kind kind, int r);

/* Raises our own finding. Returns NULL. */
void *error_format(enum error_kind kind, int number, const char *format, ...);

#endif
