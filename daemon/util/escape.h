/* SPDX-License-Identifier: MIT
 *
 * Text from outside, made safe for a terminal and for one line of a log.
 */
#pragma once

#include <stddef.h>

/* Copies len bytes to ret. Control characters (C0, DEL, and C1 in UTF-8), backslashes and invalid
 * UTF-8 become \xNN. Adds a NUL; cuts between characters if size is too small. size is at least 1.
 * Returns the length of ret. */
size_t escape(const char *text, size_t len, char *ret, size_t size);
