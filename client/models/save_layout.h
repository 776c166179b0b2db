/* SPDX-License-Identifier: MIT
 *
 * What a saved model will be: its files, their headers, and where each array's bytes go.
 */
#pragma once

#include "client/models/files/arrays.h"

#include <stdbool.h>

/* A tensor of the file. */
struct saved {
	const struct covered *array; /* one of the list's */
	const char *dtype;	     /* the format's name of it; static */
	uint64_t begin, bytes;	     /* in the file, from the end of the header */
	bool plain;		     /* its bytes lie in the buffer as they will lie in the file */
	const char *tied; /* it is not written: the tensor of that name has the same bytes; NULL */
};

/* One of the files. */
struct save_shard {
	struct saved *items; /* of the layout; in the order of the file */
	size_t n;
	uint64_t bytes;	 /* of its tensors */
	char *path;	 /* owned */
	char *header;	 /* owned: the whole of it, with its length at the front */
	size_t n_header; /* bytes */
};

struct save_layout {
	struct saved *items; /* owned; those of a shard lie side by side */
	size_t n;
	uint64_t bytes;		   /* of all tensors */
	size_t names;		   /* tensors, and other names of their bytes */
	struct save_shard *shards; /* owned */
	size_t n_shards;
	char *index, *index_path; /* owned: the text of the index; NULL: there is one file */
};

/* The largest number of files: each is open until all are written. */
#define SAVE_SHARDS_MAX 512u

/* metadata: a JSON object of strings; NULL: that of the buffer. path: the file, or if shard_bytes
 * is not 0, the name that those of the shards are made from: a shard has tensors of that many
 * bytes, or one tensor. The list of arrays must live as long. 0; -ENOTSUP (a type that the format
 * does not have), -EINVAL (metadata; too many shards), -EFBIG (the header is too large for the
 * format), -ENOMEM with gpushm_error() set. Free *ret with save_layout_clear() also after an error.
 */
int save_layout_make(struct gpushm_buffer *b, const struct arrays *arrays, const char *metadata,
		     const char *path, uint64_t shard_bytes, struct save_layout *ret);
void save_layout_clear(struct save_layout *l);
