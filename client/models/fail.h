/* SPDX-License-Identifier: MIT
 *
 * Errors about files. Their texts have names that come from a file: a character that a terminal
 * would obey, or that changes how a line looks, is shown as '?'.
 */
#pragma once

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
