/* SPDX-License-Identifier: MIT
 *
 * Numbers of any length are read: one that is too large for 64 bits is beyond every file.
 */
#include "client/relay/serve/range.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *skip_blanks(const char *p)
{
	return p + strspn(p, " \t");
}

/* Reads digits; UINT64_MAX is the highest number. False: there are none. */
static bool read_number(const char **p, uint64_t *ret)
{
	const char *start = *p;
	uint64_t value = 0;

	for (; **p >= '0' && **p <= '9'; ++*p) {
		uint64_t digit = (uint64_t)(**p - '0');

		value = value > (UINT64_MAX - digit) / 10 ? UINT64_MAX : value * 10 + digit;
	}
	*ret = value;
	return *p > start;
}

/* "first-last", "first-" or "-length"; nothing may follow. */
static bool read_spec(const char *p, bool *has_first, uint64_t *first, bool *has_last,
		      uint64_t *last)
{
	*has_first = read_number(&p, first);
	if (*p++ != '-')
		return false;
	*has_last = read_number(&p, last);
	return *skip_blanks(p) == '\0' && (*has_first || *has_last);
}

enum range_what range_parse(const char *text, uint64_t size, uint64_t *ret_begin, uint64_t *ret_n)
{
	bool has_first, has_last;
	uint64_t first, last;

	if (!text || strncasecmp(text, "bytes=", 6) != 0 ||
	    !read_spec(skip_blanks(text + 6), &has_first, &first, &has_last, &last))
		return RANGE_ALL;
	if (has_first && has_last && last < first)
		return RANGE_ALL;
	if (!has_first) {
		if (last == 0 || size == 0)
			return RANGE_NONE;
		first = last < size ? size - last : 0;
		has_last = false;
	}
	if (first >= size)
		return RANGE_NONE;
	last = has_last && last < size ? last : size - 1;
	*ret_begin = first;
	*ret_n = last - first + 1;
	return RANGE_PART;
}

bool range_has_etag(const char *list, const char *etag, bool weak)
{
	size_t n = strlen(etag);

	for (const char *p = skip_blanks(list); *p; p = skip_blanks(p + strspn(p, ","))) {
		bool is_weak = strncmp(p, "W/", 2) == 0;
		const char *end;

		if (*p == '*')
			return true;
		p += is_weak ? 2 : 0;
		end = *p == '"' ? strchr(p + 1, '"') : NULL;
		if (!end)
			return false;
		end++;
		if ((size_t)(end - p) == n && memcmp(p, etag, n) == 0 && (weak || !is_weak))
			return true;
		p = skip_blanks(end);
		if (*p && *p != ',')
			return false;
	}
	return false;
}

unsigned range_wait(const char *prefer)
{
	unsigned long wait;

	for (const char *p = prefer ? prefer + strspn(prefer, " \t,;") : ""; *p;
	     p += strspn(p, " \t,;")) {
		if (strncasecmp(p, "wait=", 5) == 0 && p[5] >= '0' && p[5] <= '9') {
			wait = strtoul(p + 5, NULL, 10);
			return wait < RANGE_WAIT_MAX ? (unsigned)wait : RANGE_WAIT_MAX;
		}
		p += strcspn(p, " \t,;");
	}
	return 0;
}
