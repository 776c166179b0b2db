/* SPDX-License-Identifier: MIT
 *
 * It allocates nothing, so that it works when memory is short.
 */
#include "proto/base/escape.h"

#include "proto/base/utf8.h"

#include <string.h>

size_t escape(const char *text, size_t len, char *ret, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	const char *p = text, *end = text + len;
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
	return used;
}
