/* SPDX-License-Identifier: MIT
 *
 * Errors about files. Their texts have names that come from a file: a character that a terminal
 * would obey, or that changes how a line looks, is shown as '?'. And errors about structs of the
 * caller, which may be those of another version of the header.
 */
#pragma once

#include "client/gpushm_load.h"

#include <errno.h>

/* As gpushm_private_fail(). */
int load_fail(int number, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* *ret is the text, which free() releases. 0; or -ENOMEM with gpushm_error() set and *ret NULL. */
int load_format(char **ret, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "out of memory" as gpushm_error(). Returns -ENOMEM. */
static inline int load_no_memory(void)
{
	return load_fail(ENOMEM, "out of memory");
}

/* Copies options that the caller filled in, `known` bytes here; NULL: all 0. what: for the text of
 * an error. 0, or -EINVAL with gpushm_error() set. */
int load_read_struct(const char *what, const void *from, void *ret, size_t known);

/* Before the work whose report it gets; NULL is allowed. 0, or -EINVAL with gpushm_error() set. */
int load_check_report(const struct gpushm_load_report *report);

/* Fills it in; NULL is allowed. */
void load_write_report(struct gpushm_load_report *ret, const struct gpushm_load_report *report);
