/* SPDX-License-Identifier: MIT
 *
 * A number of bytes as people write and read it, in binary units.
 */
#pragma once

#include <stdint.h>

struct size_text {
	char text[16];
};

/* "512 B", "12.3 GiB", "16.0 EiB"; by value, so that it stands in a printf's arguments:
 * printf("%s", size_format(n).text). */
struct size_text size_format(uint64_t bytes);

/* Reads bytes ("4096"), a number with a unit of 1024 bytes or one of its powers ("64K", "1.5G",
 * "8GiB", "8gb"), and what size_format() writes ("64.0 MiB", "512 B"). Returns NULL, or what is
 * wrong as a static text for an error message; *ret is then unchanged. */
const char *size_parse(const char *text, uint64_t *ret);
