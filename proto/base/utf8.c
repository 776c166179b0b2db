/* SPDX-License-Identifier: MIT
 *
 * One decoder for the rule for names, for the log and for gpushmctl. It owns nothing.
 */
#include "proto/base/utf8.h"

size_t utf8_next(const char *text, size_t len, uint32_t *ret)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned char c = (unsigned char)text[0];
	size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	uint32_t point = n == 1 ? c : c & (0x7fu >> n);

	if ((c >= 0x80 && c < 0xc0) || c >= 0xf8 || n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (((unsigned char)text[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | ((unsigned char)text[i] & 0x3f);
	}
	if (point < smallest[n] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
		return 0;
	*ret = point;
	return n;
}

bool utf8_valid(const char *text, size_t len)
{
	uint32_t point;

	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_next(text + i, len - i, &point);
		if (n == 0)
			return false;
	}
	return true;
}

bool utf8_is_control(uint32_t point)
{
	return point < 0x20 || (point >= 0x7f && point < 0xa0);
}
