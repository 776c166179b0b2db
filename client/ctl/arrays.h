/* SPDX-License-Identifier: MIT
 *
 * The arrays of an open buffer: as rows of a table or as JSON for stat --arrays and ls --arrays,
 * and as headers of NumPy files.
 */
#pragma once

#include "client/ctl/ctl.h"

/* The columns after the array's name. */
#define ARRAYS_COLUMNS "3DTYPE SHAPE 1ORDER >SIZE 2>OFFSET"

/* Opens the buffer for that, without its memory. An exit code. */
int arrays_open(const struct ctl *ctl, const char *name, struct gpushm_buffer **ret);

/* A row for each array. buffer: the name that stands before the array's, as get takes it
 * ("m/w:head"); NULL: the array's name alone. An exit code. */
int arrays_table(const struct ctl *ctl, struct gpushm_buffer *b, const char *buffer,
		 struct table *t);

/* The member "arrays", a list of objects. An exit code. */
int arrays_json(struct json *j, struct gpushm_buffer *b);

/* One name a line, for completion in a shell; the array without a name is left out. */
int arrays_names(struct gpushm_buffer *b);

/* The array of that name; without a name the buffer's own, or the only one. An exit code. */
int arrays_find(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret);

/* The header of a .npy file for the array's elements, malloc'd, of at least `room` bytes. frames:
 * for so many arrays like this, one after the other in C order; -1: for this one, in the order that
 * transfer_dump() writes. An exit code. */
int arrays_npy_header(const struct gpushm_array *a, int64_t frames, size_t room, char **ret,
		      size_t *ret_len);
