/* SPDX-License-Identifier: MIT
 *
 * The arrays of an open buffer, as rows of a table or as JSON: for stat --arrays and ls --arrays.
 */
#pragma once

#include "client/ctl/ctl.h"

/* The columns after the array's name. */
#define ARRAYS_COLUMNS "3DTYPE SHAPE 1ORDER >SIZE 2>OFFSET"

/* A row for each array. buffer: the name that stands before the array's, as get takes it
 * ("m/w:head"); NULL: the array's name alone. An exit code. */
int arrays_table(const struct ctl *ctl, struct gpushm_buffer *b, const char *buffer,
		 struct table *t);

/* The member "arrays", a list of objects. An exit code. */
int arrays_json(struct json *j, struct gpushm_buffer *b);

/* One name a line, for completion in a shell; the array without a name is left out. */
int arrays_names(struct gpushm_buffer *b);
