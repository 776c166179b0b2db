/* SPDX-License-Identifier: MIT
 *
 * Text for people: in a log, a message or on a terminal.
 */
#pragma once

#include <stddef.h>

/* Appends to the text in buf, which has `size` bytes; cuts what does not fit. */
void text_append(char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Makes text from outside harmless: a name or a path may have a newline that forges a line of the
 * log, or an escape sequence that controls a terminal. Copies it to ret. Readable text stays as it
 * is, UTF-8 included; unsafe characters (utf8_is_unsafe()), backslashes and invalid UTF-8 become
 * \xNN. Cuts between characters if size, which is at least 1, is too small. */
void text_escape(const char *text, char *ret, size_t size);
