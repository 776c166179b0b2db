/* SPDX-License-Identifier: MIT
 *
 * What a saved file will have: its header, and where each array's bytes go.
 */
#pragma once

#include "client/load/arrays.h"

#include <stdbool.h>

/* A tensor of the file. */
struct saved {
	const struct covered *array; /* one of the list's */
	const char *dtype;	     /* the format's name of it; static */
	uint64_t begin, bytes;	     /* in the file, from the end of the header */
	bool plain;		     /* its bytes lie in the buffer as they will lie in the file */
	const char *tied; /* it is not written: the tensor of that name has the same bytes; NULL */
};

struct save_layout {
	struct saved *items; /* owned; in the order of the file */
	size_t n;
	uint64_t bytes;	 /* of all tensors */
	size_t names;	 /* tensors, and other names of their bytes */
	char *header;	 /* owned: the whole of it, with its length at the front */
	size_t n_header; /* bytes */
};

/* metadata: a JSON object of strings; NULL: that of the buffer. The list of arrays must live as
 * long. 0; -ENOTSUP (a type that the format does not have), -EINVAL (metadata), -EFBIG (the header
 * is too large for the format), -ENOMEM with gpushm_error() set. Free *ret with save_layout_clear()
 * also after an error. */
int save_layout_make(struct gpushm_buffer *b, const struct arrays *arrays, const char *metadata,
		     struct save_layout *ret);
void save_layout_clear(struct save_layout *l);
