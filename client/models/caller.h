/* SPDX-License-Identifier: MIT
 *
 * Structs of the caller, which may be those of another version of the header.
 */
#pragma once

#include "client/gpushm_load.h"

/* Copies options that the caller filled in, `known` bytes here; NULL: all 0. what: for the text of
 * an error. 0, or -EINVAL with gpushm_error() set. */
int caller_read(const char *what, const void *from, void *ret, size_t known);

/* Before the work whose report it gets; NULL is allowed. 0, or -EINVAL with gpushm_error() set. */
int caller_check_report(const struct gpushm_load_report *report);

/* Fills it in; NULL is allowed. */
void caller_write_report(struct gpushm_load_report *ret, const struct gpushm_load_report *report);
