/* SPDX-License-Identifier: MIT
 *
 * Sizes as text. Units are binary, because a GPU's memory, a page and a pool's granularity are
 * multiples of them, and are written as such (IEC 80000-13: KiB, MiB, GiB).
 *
 * A size is read digit by digit: strtoull() and strtod() also take signs, blanks, hexadecimal,
 * "inf" and "nan". A fraction is cut to whole bytes.
 */
#include "proto/base/size.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FRACTION_DIGITS_MAX 9

static const char units[] = "KMGTPE";

struct size_text size_format(uint64_t bytes)
{
	struct size_text ret;
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret.text, sizeof(ret.text), "%u B", (unsigned int)bytes);
		return ret;
	}

	/* 1023.95 would be printed as "1024.0": it is the next unit's 1.0. */
	while (value >= 1023.95 && units[unit + 1]) {
		value /= 1024;
		unit++;
	}
	snprintf(ret.text, sizeof(ret.text), "%.1f %ciB", value, units[unit]);
	return ret;
}

static const char *parse_digits(const char **text, uint64_t *ret)
{
	uint64_t value = 0;

	if (!isdigit((unsigned char)**text))
		return "it must start with a digit";
	for (; isdigit((unsigned char)**text); ++*text)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(**text - '0'), &value))
			return "it is too large";
	*ret = value;
	return NULL;
}

/* Reads ".5". */
static const char *parse_fraction(const char **text, double *ret)
{
	double value = 0, scale = 1;
	const char *p = *text + 1;

	for (; isdigit((unsigned char)*p); p++) {
		value = 10 * value + (*p - '0');
		scale *= 10;
	}
	if (p == *text + 1)
		return "digits are missing after its point";
	if (p - *text > FRACTION_DIGITS_MAX + 1)
		return "it has more than nine decimals";
	*text = p;
	*ret = value / scale;
	return NULL;
}

/* Reads what may follow the number: " B", or a letter that "B" or "iB" may follow. */
static const char *parse_unit(const char *text, unsigned *ret_shift)
{
	const char *unit;

	text += *text == ' ' && text[1];
	unit = *text ? strchr(units, toupper((unsigned char)*text)) : NULL;
	*ret_shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (unit && text[1] == 'i' && text[2] == 'B')
		text++;
	text += unit != NULL;
	text += *text == 'B';
	return *text ? "its unit is none of B, K, M, G, T, P, E or KiB to EiB" : NULL;
}

const char *size_parse(const char *text, uint64_t *ret)
{
	uint64_t value = 0, part;
	double fraction = 0;
	unsigned shift = 0;
	const char *wrong = parse_digits(&text, &value);

	if (!wrong && *text == '.')
		wrong = parse_fraction(&text, &fraction);
	if (!wrong)
		wrong = parse_unit(text, &shift);
	if (wrong)
		return wrong;
	if (fraction > 0 && !shift)
		return "it is no whole number of bytes";
	/* A fraction that is a whole number of bytes is a sum of powers of two: this is exact. */
	part = (uint64_t)ldexp(fraction, (int)shift);
	if (value > UINT64_MAX >> shift || __builtin_add_overflow(value << shift, part, &value))
		return "it is too large";
	*ret = value;
	return NULL;
}
