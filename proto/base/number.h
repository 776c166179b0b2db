/* SPDX-License-Identifier: MIT
 *
 * Decimal numbers as people write them. strtoull() also takes signs, blanks and a prefix of the
 * text, which a typing error may produce.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether the text is all of a number of at most max. Else *ret is not changed. */
static inline bool number_read(const char *text, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (*text == '\0')
		return false;
	for (; *text; text++)
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	if (value <= max)
		*ret = value;
	return value <= max;
}
