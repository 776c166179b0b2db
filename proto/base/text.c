/* SPDX-License-Identifier: MIT
 *
 * These texts are short, and built for people: their end is looked for each time.
 */
#include "proto/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void text_append(char *buf, size_t size, const char *format, ...)
{
	size_t used = strlen(buf);
	va_list args;

	va_start(args, format);
	vsnprintf(buf + used, size - used, format, args);
	va_end(args);
}
