/* SPDX-License-Identifier: MIT
 *
 * Layouts of many arrays: what create_many() and stream() get as a dict.
 */
#pragma once

#include "client/python/core/args.h"

struct layouts {
	size_t n;
	struct layout *layouts;		 /* owned */
	struct gpushm_array_spec *specs; /* theirs, in a row; owned */
};

/* `items` is a list of (name, value), and keeps the names. A value is (shape, dtype), or an object
 * that has both; a list or a number is replaced by an array. The caller ends *ret with
 * layouts_done(), also after a failure. */
int layouts_from(PyObject *items, struct layouts *ret);
void layouts_done(struct layouts *l);
