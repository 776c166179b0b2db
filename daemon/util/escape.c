/* SPDX-License-Identifier: MIT
 *
 * Makes text from outside harmless for who reads it: a name or a path may hold a newline that
 * forges a line of the log, or an escape sequence that drives a terminal. What can be read stays
 * as it is, UTF-8 included; the rest becomes \xNN.
 *
 * It owns nothing and allocates nothing, so that it can run when memory is short.
 */
#include "daemon/util/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the character that starts at p, or 0 where it is no valid UTF-8 (RFC 3629: overlong
 * forms, surrogates and what lies above U+10FFFF are not). */
static size_t utf8_length(const unsigned char *p, size_t len)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	uint32_t c = n == 4 ? p[0] & 0x0f : n == 3 ? p[0] & 0x0f : p[0] & 0x1f;

	if (n <= 1)
		return n;
	if (p[0] > 0xf4 || n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

static bool is_control(const unsigned char *p, size_t n)
{
	return (n == 1 && (p[0] < 0x20 || p[0] == 0x7f || p[0] == '\\')) ||
	       (n == 2 && p[0] == 0xc2 && p[1] < 0xa0);
}

size_t escape(const char *text, size_t len, char *ret, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = (const unsigned char *)text, *end = p + len;
	size_t used = 0;

	while (p < end) {
		size_t n = utf8_length(p, (size_t)(end - p));

		if (n > 0 && !is_control(p, n)) {
			if (used + n >= size)
				break;
			memcpy(ret + used, p, n);
			used += n;
			p += n;
			continue;
		}
		if (used + 4 >= size)
			break;
		memcpy(ret + used, (char[]){ '\\', 'x', digits[*p >> 4], digits[*p & 15] }, 4);
		used += 4;
		p++;
	}
	ret[used] = '\0';
	return used;
}
