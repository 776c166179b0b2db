/* SPDX-License-Identifier: MIT
 *
 * The public dtype and array spec, and the structs of proto/ that hold the same.
 */
#pragma once

#include "client/gpushm_array.h"
#include "proto/table.h"

static inline struct dtype dtype_from_public(struct gpushm_dtype t)
{
	return (struct dtype){ t.code, t.bits, t.lanes, t.itemsize };
}

static inline struct gpushm_dtype dtype_to_public(struct dtype t)
{
	return (struct gpushm_dtype){ t.code, t.bits, t.lanes, t.itemsize };
}

/* Of an array of specs that a caller gave: 0; or -EINVAL with gpushm_error() set: NULL, or what
 * struct_size says is wrong. */
int specs_check(const struct gpushm_array_spec *specs, size_t n);

/* The i-th of them as this version of the library has it; of one that is not in an array, the
 * 0th. After specs_check(). */
struct gpushm_array_spec spec_at(const struct gpushm_array_spec *specs, size_t i);

/* Copies the numbers and borrows the texts. 0, or -EINVAL with gpushm_error() set: ndim, a negative
 * length, a text that is too long. The table checks the rest. */
int spec_to_table(const struct gpushm_array_spec *spec, struct table_array *ret);
