/* SPDX-License-Identifier: MIT
 *
 * A .npy file, or standard input, that is about to become an array.
 */
#ifndef GPUSHM_CLIENT_CTL_SOURCE_H
#define GPUSHM_CLIENT_CTL_SOURCE_H

#include "client/ctl/npy.h"
#include "client/gpushm.h"

struct source {
	const char *file;  /* borrowed; for messages "standard input" */
	const char *array; /* borrowed: the array's name */
	int fd;		   /* owned; at the data */
	struct npy npy;
	int64_t strides[DIMENSIONS_MAX]; /* bytes; of Fortran order */
};

/* Opens the file ("-": standard input), reads its header, and checks that a regular file is long
 * enough. An exit code. */
int source_open(struct source *s, const char *file, const char *array);
void source_close(struct source *s);

/* Calls the elements another type of the same size: float8 in a file of bytes. An exit code. */
int source_retype(struct source *s, const char *dtype);

/* The array to be, without its place; it borrows from the source. */
void source_spec(struct source *s, struct gpushm_array_spec *ret);

#endif
