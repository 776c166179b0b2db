/* SPDX-License-Identifier: MIT
 *
 * Errors about servers. What a server has sent is shown with '?' for what a terminal would obey.
 */
#pragma once

#include <errno.h>

/* As gpushm_private_fail(). */
int remote_fail(int number, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "out of memory" as gpushm_error(). Returns -ENOMEM. */
static inline int remote_no_memory(void)
{
	return remote_fail(ENOMEM, "out of memory");
}
