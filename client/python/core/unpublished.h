/* SPDX-License-Identifier: MIT
 *
 * UnpublishedWarning: what a user sees when the contents of a buffer are gone, because it ended
 * before it was published. The warning shows the line that created the buffer, also where the
 * collector or the end of the program closes it.
 */
#pragma once

#include "client/python/core/object.h"

/* Adds gpushm.errors.UnpublishedWarning to the module. */
int unpublished_init(PyObject *module);

/* The innermost place in the program outside of this package, as (file, line, name of the module);
 * None: only this package is on the stack. */
PyObject *unpublished_place(void);

/* Warns that the contents of the buffer of that name are gone. place: where it was made. An
 * exception where warnings are errors. */
int unpublished_warn(PyObject *name, PyObject *place);

/* Does the same where no exception can be raised, and leaves one that is being handled as it is. */
void unpublished_warn_quietly(PyObject *name, PyObject *place);
