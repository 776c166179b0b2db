/* SPDX-License-Identifier: MIT
 *
 * How text is made fit for a person's eyes. Names and attributes come from other users, so they
 * are decoded here rather than by the C library: mbrtowc() depends on a locale that a cron job
 * does not have, and passes the C1 control characters that some terminals obey.
 * This room prints nothing and owns nothing that it returns.
 */
#include "client/ctl/output.h"

#include "proto/base/size.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

char *output_size(uint64_t bytes, bool exact, char *buf, size_t size)
{
	if (exact)
		snprintf(buf, size, "%" PRIu64, bytes);
	else
		snprintf(buf, size, "%s", size_format(bytes).text);
	return buf;
}

char *output_age(uint64_t ns, char *buf, size_t size)
{
	uint64_t s = ns / 1000000000u;

	if (s < 120)
		snprintf(buf, size, "%" PRIu64 "s", s);
	else if (s < 120 * 60)
		snprintf(buf, size, "%" PRIu64 "m", s / 60);
	else if (s < 48 * 3600)
		snprintf(buf, size, "%" PRIu64 "h", s / 3600);
	else
		snprintf(buf, size, "%" PRIu64 "d", s / 86400);
	return buf;
}

char *output_time(uint64_t ns, char *buf, size_t size)
{
	time_t s = (time_t)(ns / 1000000000u);
	struct tm tm = { 0 };
	char date[24];

	gmtime_r(&s, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf, size, "%s.%09uZ", date, (unsigned)(ns % 1000000000u));
	return buf;
}

size_t output_utf8_next(const char *s, size_t len, uint32_t *ret)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned char c = (unsigned char)s[0];
	size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	uint32_t cp = n == 1 ? c : c & (0xffu >> (n + 1));

	if ((c >= 0x80 && c < 0xc0) || c >= 0xf8 || n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if (((unsigned char)s[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | ((unsigned char)s[i] & 0x3f);
	}
	if (cp < smallest[n] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		return 0;
	*ret = cp;
	return n;
}

bool output_utf8_valid(const char *s, size_t len)
{
	uint32_t cp;

	for (size_t i = 0, n; i < len; i += n) {
		n = output_utf8_next(s + i, len - i, &cp);
		if (!n)
			return false;
	}
	return true;
}

static bool is_control(uint32_t cp)
{
	/* C0, DEL, C1, and the marks that turn the direction of what follows. */
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0x202a && cp <= 0x202e) ||
	       (cp >= 0x2066 && cp <= 0x2069);
}

char *output_escape(const char *s, size_t len)
{
	char *out = malloc(4 * len + 1), *o = out;
	uint32_t cp = 0;

	if (!out)
		return NULL;
	for (size_t i = 0; i < len;) {
		size_t n = output_utf8_next(s + i, len - i, &cp);
		bool raw = n && !is_control(cp);

		for (size_t end = i + (n ? n : 1); i < end; i++)
			if (raw)
				*o++ = s[i];
			else
				o += sprintf(o, "\\x%02x", (unsigned char)s[i]);
	}
	*o = '\0';
	return out;
}

size_t output_width(const char *s)
{
	size_t len = strlen(s), width = 0, n;
	uint32_t cp;

	for (size_t i = 0; i < len; i += n) {
		int w;

		n = output_utf8_next(s + i, len - i, &cp);
		if (!n) {
			n = 1;
			width++;
			continue;
		}
		/* -1: a locale without this character, where one column is the best guess. */
		w = wcwidth((wchar_t)cp);
		width += w < 0 ? 1 : (size_t)w;
	}
	return width;
}

bool output_terminal(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

bool output_colour(int fd)
{
	const char *no_color = getenv("NO_COLOR"); /* no-color.org: set, and not empty */

	return output_terminal(fd) && !(no_color && *no_color);
}
