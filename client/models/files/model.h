/* SPDX-License-Identifier: MIT
 *
 * A model: what becomes of a checkpoint's tensors in a buffer. Which of them are wanted, under
 * which names and at which offsets; what is copied; and the keys by which the same files are known
 * again.
 */
#pragma once

#include "client/gpushm_array.h"
#include "client/gpushm_load.h"
#include "client/models/files/checkpoint.h"
#include "client/models/files/plan.h"

#define MODEL_TYPES_MAX 512u	 /* bytes of model_types() */
#define MODEL_METADATA_MAX 1024u /* bytes that become an attribute; more become an array */

/* It must not be moved: a spec points to metadata_shape. */
struct model {
	struct gpushm_array_spec *specs; /* owned; the names are the checkpoint's */
	size_t n, n_placed;  /* those behind the placed ones are tied: other names of their bytes */
	uint64_t bytes;	     /* of a buffer for them */
	struct plan plan;    /* its runs are owned */
	char *metadata;	     /* owned: the files' __metadata__, merged, as JSON; or NULL */
	size_t metadata_len; /* bytes */
	bool has_metadata_array;
	int64_t metadata_shape;
	char source[65], files[65]; /* keys: hexadecimal, with a NUL; files is "" for a stream */
};

/* Metadata for an array become a file in memory of the checkpoint. load may be NULL. Errors, with
 * gpushm_error() set: -ENODATA, -EEXIST, -EINVAL, -ENAMETOOLONG, -EOVERFLOW, -EDQUOT (more arrays
 * than a buffer can have), -ENOMEM. */
int model_build(struct checkpoint *cp, const struct gpushm_load_options *load, struct model *ret);

/* May be called on a zeroed model and twice. */
void model_clear(struct model *m);

/* Which types its tensors have, as text: the attribute "gpushm.types", so that a program can show
 * what a buffer has without opening it: that may start a GPU's driver. "bfloat16 280 16060522496,
 * float32 11 90112": a type, its tensors, their bytes; the one with the most bytes first. Tied
 * tensors have their bytes once. "" if the text would be longer than size. 0; -ENOMEM with
 * gpushm_error() set. */
int model_types(const struct model *m, char *ret, size_t size);

/* The keys alone. */
void model_keys(const struct checkpoint *cp, const struct gpushm_load_options *load,
		char ret_source[65], char ret_files[65]);
