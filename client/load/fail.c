/* SPDX-License-Identifier: MIT
 *
 * Makes the text of an error printable, and stores it where gpushm_error() finds it.
 */
#include "client/load/fail.h"

#include "client/gpushm_private.h"
#include "proto/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Replaces in place: what replaces a character is never longer. */
static void make_printable(char *text)
{
	size_t len = strlen(text), to = 0;
	uint32_t point;

	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_next(text + i, len - i, &point);
		if (n == 0 || utf8_is_unsafe(point)) {
			n = n ? n : 1;
			text[to++] = '?';
			continue;
		}
		memmove(text + to, text + i, n);
		to += n;
	}
	text[to] = '\0';
}

int load_fail(int number, const char *format, ...)
{
	char text[sizeof((struct gpushm_private_error){ .code = NULL }.text)];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	make_printable(text);
	return gpushm_private_fail(number, "%s", text);
}
