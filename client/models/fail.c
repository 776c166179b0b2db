/* SPDX-License-Identifier: MIT
 *
 * Makes the text of an error printable, and stores it where gpushm_error() finds it.
 */
#include "client/models/fail.h"

#include "client/gpushm_private.h"
#include "proto/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int load_fail(int number, const char *format, ...)
{
	char text[sizeof((struct gpushm_private_error){ .code = NULL }.text)];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	utf8_make_printable(text);
	return gpushm_private_fail(number, "%s", text);
}

int load_format(char **ret, const char *format, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, format);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	*ret = n < 0 ? NULL : malloc((size_t)n + 1);
	if (*ret)
		vsnprintf(*ret, (size_t)n + 1, format, again);
	va_end(again);
	return *ret ? 0 : load_no_memory();
}
