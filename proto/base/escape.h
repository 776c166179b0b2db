/* SPDX-License-Identifier: MIT
 *
 * Text for a log or a terminal.
 */
#pragma once

#include <stddef.h>

/* Makes text from outside harmless: a name or a path may have a newline that forges a line of the
 * log, or an escape sequence that controls a terminal. Copies len bytes to ret. Readable text stays
 * as it is, UTF-8 included; unsafe characters (utf8_is_unsafe()), backslashes and invalid UTF-8
 * become \xNN. Adds a NUL; cuts between characters if size is too small. size is at least 1.
 * Returns the length of ret. */
size_t escape(const char *text, size_t len, char *ret, size_t size);
