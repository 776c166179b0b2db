/* SPDX-License-Identifier: MIT */
#include "proto/base/uri.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

int uri_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1;
}

void uri_encode(const char *text, size_t len, const char *kept, char *ret)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (isalnum(c) || (c != '\0' && strchr(kept, c)))
			*ret++ = (char)c;
		else
			ret += sprintf(ret, "%%%02X", c);
	}
	*ret = '\0';
}

bool uri_decode(const char *text, char *ret, size_t size)
{
	size_t n = 0;

	for (; *text; text++) {
		int high = *text == '%' ? uri_hex_digit(text[1]) : -1;
		int low = high >= 0 ? uri_hex_digit(text[2]) : -1;

		if ((*text == '%' && (low < 0 || high + low == 0)) || n + 1 >= size)
			return false;
		ret[n++] = *text == '%' ? (char)(high << 4 | low) : *text;
		text += *text == '%' ? 2 : 0;
	}
	ret[n] = '\0';
	return true;
}
