/* SPDX-License-Identifier: MIT
 *
 * Takes a text apart into sections and assignments, in place. The form is that of systemd's unit
 * files (systemd.syntax(7)): "[section]", "key=value", a backslash at the end joins the next line,
 * '#' and ';' start a comment, and a comment inside a continued line is left out. Unlike there, a
 * comment may also follow a value, after a blank: --dump-config says so where each value was set,
 * and still writes a file that can be read again.
 *
 * It owns and allocates nothing. It stops early only at a NUL, which no text file has.
 */
#include "proto/base/ini.h"

#include "proto/base/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

static const char blanks[] = " \t";

/* Some editors begin a file in UTF-8 with it. It is no part of the first line; systemd skips it,
 * too. */
static const char byte_order_mark[] = "\xef\xbb\xbf";

/* The text quotes the file, and --check-config writes to a terminal, so everything is escaped. */
void diagnostics_note(struct diagnostics *d, unsigned line, const char *format, ...)
{
	char text[1024], safe[4 * sizeof(text)], file[PATH_MAX + 16], where[16] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_escape(text, safe, sizeof(safe));
	text_escape(d->file, file, sizeof(file));
	if (line > 0)
		snprintf(where, sizeof(where), ":%u", line);
	fprintf(d->out, "%s%s: %s\n", file, where, safe);
}

void ini_init(struct ini *ini, char *text, size_t len, struct diagnostics *diagnostics)
{
	*ini = (struct ini){ .diagnostics = diagnostics, .at = text, .end = text + len };
	text[len] = '\0';
	if (strncmp(text, byte_order_mark, strlen(byte_order_mark)) == 0)
		ini->at += strlen(byte_order_mark);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool opens_comment(char c)
{
	return c == '#' || c == ';';
}

/* The length of a line without its comment and the blanks before that. */
static size_t cut_comment(const char *line, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (opens_comment(line[i]) && (i == 0 || is_blank(line[i - 1])))
			len = i;
	while (len > 0 && is_blank(line[len - 1]))
		len--;
	return len;
}

/* Whether a line has only bytes of a text file; if not, a diagnostic says so. */
static bool check_bytes(struct ini *ini, const char *line, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)line[i];

		if (c >= 0x20 ? c != 0x7f : c == '\t')
			continue;
		if (c == '\0')
			ini->at = ini->end;
		diagnostics_add(ini->diagnostics, ini->line, "control character 0x%02x%s", c,
				c == '\r'   ? "; the file needs Unix line ends (LF alone)"
				: c == '\0' ? "; this is no text file, the rest is not read"
					    : "; allowed: text and tabs");
		return false;
	}
	return true;
}

/* Joins the line at ini->at with the lines that continue it, drops comments and outer blanks, and
 * adds a NUL. The result is never longer than the text was, so it stays in its place. */
static char *take_line(struct ini *ini)
{
	char *line = ini->at, *tail = line;
	bool more = true, good = true;

	for (bool first = true; more && ini->at < ini->end; first = false) {
		char *start = ini->at;
		char *newline = memchr(start, '\n', (size_t)(ini->end - start));
		char *end = newline ? newline : ini->end;
		size_t len;

		ini->at = newline ? newline + 1 : ini->end;
		ini->line++;
		good &= check_bytes(ini, start, (size_t)(end - start));
		start += strspn(start, blanks);
		if (!first && start < end && opens_comment(*start))
			continue;
		len = cut_comment(start, (size_t)(end - start));
		more = len > 0 && start[len - 1] == '\\';
		if (more)
			start[len - 1] = ' ';
		memmove(tail, start, len);
		tail += len;
	}
	if (!good)
		tail = line;
	while (tail > line && is_blank(tail[-1]))
		tail--;
	*tail = '\0';
	return line;
}

/* The argument may have brackets itself, in pairs, as patterns do. */
static char *find_close(char *line)
{
	unsigned open = 0;

	for (char *p = line; *p; p++) {
		open += *p == '[';
		if (*p == ']' && --open == 0)
			return p;
	}
	return strchr(line, ']');
}

/* "[section argument]" */
static void parse_header(struct ini *ini, char *line, struct ini_item *ret)
{
	char *close = find_close(line);
	char *section = line + 1 + strspn(line + 1, blanks);
	char *argument;

	ret->section = ret->argument = line + strlen(line);
	if (!close || close[1] != '\0') {
		diagnostics_add(ini->diagnostics, ret->line,
				"a section's name ends with ], and nothing follows it; allowed: "
				"[section] or [section NAME]");
		return;
	}
	*close = '\0';
	while (close > section && is_blank(close[-1]))
		*--close = '\0';
	argument = section + strcspn(section, blanks);
	if (*argument != '\0') {
		*argument++ = '\0';
		argument += strspn(argument, blanks);
	}
	if (*section == '\0')
		diagnostics_add(ini->diagnostics, ret->line,
				"a section without a name; allowed: [section] or [section NAME]");
	ret->section = section;
	ret->argument = argument;
}

static bool parse_assignment(struct ini *ini, char *line, struct ini_item *ret)
{
	char *equals = strchr(line, '='), *end = equals;

	if (!equals || equals == line) {
		diagnostics_add(ini->diagnostics, ret->line,
				"\"%.64s\" is neither; allowed: [section], key=value or # comment",
				line);
		return false;
	}
	while (end > line && is_blank(end[-1]))
		end--;
	*end = '\0';
	ret->key = line;
	ret->value = equals + 1 + strspn(equals + 1, blanks);
	return true;
}

enum ini_what ini_next(struct ini *ini, struct ini_item *ret)
{
	while (ini->at < ini->end) {
		struct ini_item item = { .line = ini->line + 1 };
		char *line = take_line(ini);

		if (*line == '\0')
			continue;
		if (*line == '[') {
			parse_header(ini, line, &item);
			*ret = item;
			return INI_SECTION;
		}
		if (parse_assignment(ini, line, &item)) {
			*ret = item;
			return INI_ASSIGNMENT;
		}
	}
	return INI_END;
}
