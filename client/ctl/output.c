/* SPDX-License-Identifier: MIT
 *
 * How text is made fit for a person's eyes. Names and attributes come from other users, so they
 * are decoded here rather than by the C library: mbrtowc() depends on a locale that a cron job
 * does not have, and passes the C1 control characters that some terminals obey.
 * This room prints nothing and owns nothing that it returns.
 */
#include "client/ctl/output.h"

#include "proto/base/size.h"
#include "proto/base/utf8.h"

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

/* Control characters, and the marks that change the direction of the text after them. */
static bool is_unsafe(uint32_t point)
{
	return utf8_is_control(point) || (point >= 0x202a && point <= 0x202e) ||
	       (point >= 0x2066 && point <= 0x2069);
}

char *output_escape(const char *s, size_t len)
{
	char *out = malloc(4 * len + 1), *o = out;
	uint32_t cp = 0;

	if (!out)
		return NULL;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_next(s + i, len - i, &cp);
		bool raw = n && !is_unsafe(cp);

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

		n = utf8_next(s + i, len - i, &cp);
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
