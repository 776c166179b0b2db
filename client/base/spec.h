/* SPDX-License-Identifier: MIT
 *
 * What a caller says an array is, turned into what the table's checks understand.
 */
#ifndef GPUSHM_CLIENT_BASE_SPEC_H
#define GPUSHM_CLIENT_BASE_SPEC_H

#include "client/gpushm.h"
#include "proto/table.h"

/* Copies the numbers and borrows the texts. 0, or -EINVAL with gpushm_error() set: ndim, a negative
 * length, a text that is too long. All else is the table's to check. */
int spec_to_table(const struct gpushm_array_spec *spec, struct table_array *ret);

/* The errno, negative, of what a check of the table said, with gpushm_error() set: `index` is the
 * array's place among those that the caller gave. */
int spec_error(const struct table_error *err, size_t index);

/* Bytes that the array touches, and how far the lowest lies before its element [0, 0, ...]. 0, or
 * -EINVAL, -EOVERFLOW with gpushm_error() set. */
int spec_span(const struct gpushm_array_spec *spec, uint64_t *ret_before, uint64_t *ret_bytes);

#endif
