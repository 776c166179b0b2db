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

		/* Not isalnum(), which depends on the locale above 127. */
		if ((c < 128 && isalnum(c)) || (c != '\0' && strchr(kept, c)))
			*ret++ = (char)c;
		else
			ret += sprintf(ret, "%%%02X", c);
	}
	*ret = '\0';
}

bool uri_decode(const char *text, char *ret, size_t size)
{
	size_t n = 0;

	/* ret may be text, and is written after text was read. */
	while (*text) {
		bool encoded = *text == '%';
		int high = encoded ? uri_hex_digit(text[1]) : -1;
		int low = high >= 0 ? uri_hex_digit(text[2]) : -1;
		char c = *text;

		if ((encoded && (low < 0 || high + low == 0)) || n + 1 >= size)
			return false;
		text += encoded ? 3 : 1;
		ret[n++] = encoded ? (char)(high << 4 | low) : c;
	}
	ret[n] = '\0';
	return true;
}
