/* SPDX-License-Identifier: MIT
 *
 * Percent signs of URIs (RFC 3986).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What stays as it is, besides letters and digits, when a text becomes a part of a path. */
#define URI_PATH "-._~/"

/* ret has room for 3 * len + 1 bytes. */
void uri_encode(const char *text, size_t len, const char *kept, char *ret);

/* ret has size bytes; it may be the text itself. False: a percent sign without two digits, or one
 * that stands for a NUL; or the text is too long. ret is then undefined. */
bool uri_decode(const char *text, char *ret, size_t size);

/* The value of a hexadecimal digit, or -1. */
int uri_hex_digit(char c);
