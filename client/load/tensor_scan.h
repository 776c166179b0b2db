/* SPDX-License-Identifier: MIT
 *
 * Reads one tensor of a header without making objects of it. A text that this does not read may be
 * right or wrong: ask jansson.
 */
#pragma once

#include "client/load/header.h"

#include <stdbool.h>

struct tensor_scan {
	const char *at, *end;
};

/* Reads "name": {"dtype": ..., "shape": [...], "data_offsets": [...]}, and moves s->at behind it.
 * Sets dtype, ndim, begin and end of *t, where begin <= end; dims, which has room for
 * GPUSHM_MAX_NDIM; and the name, which lies in the text. False: it is something else, and s->at and
 * what was set mean nothing. */
bool tensor_scan(struct tensor_scan *s, struct tensor *t, int64_t *dims, const char **ret_name,
		 size_t *ret_n);
