/* SPDX-License-Identifier: MIT
 *
 * Nothing is allocated, so that a line can be logged when memory is short. Texts that are put
 * together are short: their end is looked for each time.
 */
#include "proto/base/text.h"

#include "proto/base/utf8.h"

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

void text_escape(const char *text, char *ret, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	const char *p = text, *end = text + strlen(text);
	uint32_t point = 0;
	size_t used = 0;

	while (p < end) {
		size_t n = utf8_next(p, (size_t)(end - p), &point);

		if (n > 0 && !utf8_is_unsafe(point) && point != '\\') {
			if (used + n >= size)
				break;
			memcpy(ret + used, p, n);
			used += n;
			p += n;
			continue;
		}
		if (used + 4 >= size)
			break;
		memcpy(ret + used, (char[]){ '\\', 'x', digits[*p >> 4 & 15], digits[*p & 15] }, 4);
		used += 4;
		p++;
	}
	ret[used] = '\0';
}
