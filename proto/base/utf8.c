/* SPDX-License-Identifier: MIT
 *
 * One decoder for the rule for names, for the log and for gpushmctl. It owns nothing.
 */
#include "proto/base/utf8.h"

#include "proto/base/own.h"

#include <string.h>

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

/* Unicode's general categories Cc, Cf, Zl and Zp, and the property Default_Ignorable_Code_Point
 * (DerivedCoreProperties.txt), of version 16, and the points that are no characters. iswprint()
 * depends on the locale and the C library's version, and accepts most of these. */
static const struct {
	uint32_t first, last;
} unsafe[] = {
	{ 0, 0x1f },	      { 0x7f, 0x9f },	    { 0xad, 0xad },	  { 0x34f, 0x34f },
	{ 0x600, 0x605 },     { 0x61c, 0x61c },	    { 0x6dd, 0x6dd },	  { 0x70f, 0x70f },
	{ 0x890, 0x891 },     { 0x8e2, 0x8e2 },	    { 0x115f, 0x1160 },	  { 0x17b4, 0x17b5 },
	{ 0x180b, 0x180f },   { 0x200b, 0x200f },   { 0x2028, 0x202e },	  { 0x2060, 0x206f },
	{ 0x3164, 0x3164 },   { 0xfdd0, 0xfdef },   { 0xfe00, 0xfe0f },	  { 0xfeff, 0xfeff },
	{ 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb },   { 0x110bd, 0x110bd }, { 0x110cd, 0x110cd },
	{ 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a }, { 0xe0000, 0xe0fff },
};

bool utf8_is_unsafe(uint32_t point)
{
	if (point >= 0x20 && point < 0x7f) /* most are */
		return false;
	if ((point & 0xfffe) == 0xfffe) /* the last two of each plane are no characters */
		return true;
	for (size_t i = 0; i < array_size(unsafe); i++)
		if (point <= unsafe[i].last)
			return point >= unsafe[i].first;
	return false;
}

/* Replaces in place: what replaces a character is never longer. */
void utf8_make_printable(char *text)
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
