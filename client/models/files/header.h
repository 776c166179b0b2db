/* SPDX-License-Identifier: MIT
 *
 * The header of a safetensors file: a JSON object of tensors. It is read more strictly than by the
 * format's own library; gpushm_load(3) has the rules, and
 * tests/python/test_safetensors_mutations.py the reason of each difference.
 */
#pragma once

#include "client/gpushm_array.h"
#include "proto/limits.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define METADATA "__metadata__"		      /* a member of the header that is no tensor */
#define HEADER_BYTES_MAX 100000000u	      /* of the JSON text; the format's own limit */
#define HEADER_METADATA_VALUES_MAX ARRAYS_MAX /* as many names as arrays can be tied */
#define HEADER_NO_SIZE UINT64_MAX /* a stream: how many bytes of data follow is not known */

struct tensor {
	const char *name; /* of the header, as the shape */
	struct gpushm_dtype dtype;
	uint32_t ndim;
	const int64_t *shape;
	uint64_t begin, end; /* bytes, from the end of the header */
};

/* Another name of a tensor, as safetensors.torch.save_model() writes it into __metadata__ for tied
 * weights. */
struct tensor_alias {
	const char *name; /* in header::metadata */
	size_t tensor;	  /* index in header::tensors */
};

struct header {
	struct tensor *tensors; /* owned; in the order of their bytes, which they cover all */
	size_t n;
	struct tensor_alias *aliases; /* owned */
	size_t n_aliases;
	json_t *metadata; /* owned: an object of strings; or NULL */
	char *names;	  /* owned */
	int64_t *dims;	  /* owned */
};

/* Reads a header of `length` bytes; data_bytes are those that follow it in the file. Names of
 * tensors follow the rule for names of arrays. `path` is for errors: -EBADMSG (a rule is broken),
 * -ENAMETOOLONG and -EINVAL (a tensor can't be an array of that name or of so many dimensions),
 * -ENOMEM, with gpushm_error() set. */
int header_parse(const char *path, const char *text, size_t length, uint64_t data_bytes,
		 struct header *ret);

/* May be called on a zeroed header and twice. */
void header_done(struct header *h);

/* Between the format's names of types and ours. 0, or -EINVAL; *ret_name is static. */
int tensor_dtype_parse(const char *name, struct gpushm_dtype *ret);
int tensor_dtype_name(struct gpushm_dtype t, const char **ret_name);
