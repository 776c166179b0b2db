/* SPDX-License-Identifier: MIT
 *
 * A tensor as a header describes it.
 */
#pragma once

#include "client/gpushm_array.h"

#include <stdint.h>

#define METADATA "__metadata__" /* a member of the header that is no tensor */

struct tensor {
	const char *name; /* of the header, as the shape */
	struct gpushm_dtype dtype;
	uint32_t ndim;
	const int64_t *shape;
	uint64_t begin, end; /* bytes, from the end of the header */
};

/* Between the format's names of types and ours. 0, or -EINVAL; *ret_name is static. */
int tensor_dtype_parse(const char *name, struct gpushm_dtype *ret);
int tensor_dtype_name(struct gpushm_dtype t, const char **ret_name);
