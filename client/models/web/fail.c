/* SPDX-License-Identifier: MIT
 *
 * Makes the text of an error printable, and stores it where gpushm_error() finds it.
 */
#include "client/models/web/fail.h"

#include "client/gpushm_private.h"
#include "proto/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

int remote_fail(int number, const char *format, ...)
{
	char text[sizeof((struct gpushm_private_error){ .code = NULL }.text)];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	utf8_make_printable(text);
	return gpushm_private_fail(number, "%s", text);
}
