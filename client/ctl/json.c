/* SPDX-License-Identifier: MIT
 *
 * The writer streams: it keeps only the depth, so a list of any length costs no memory.
 * It checks no write: main() checks the stream once, at the end.
 */
#include "client/ctl/json.h"

#include "client/ctl/output.h"
#include "proto/base/utf8.h"

#include <stdarg.h>
#include <string.h>

void json_init(struct json *j, FILE *out, bool pretty)
{
	*j = (struct json){ .out = out, .pretty = pretty };
}

static void new_line(struct json *j)
{
	if (!j->pretty || !j->depth)
		return;
	fputc('\n', j->out);
	for (unsigned i = 0; i < j->depth; i++)
		fputs("  ", j->out);
}

static void write_char(struct json *j, const char *s, size_t n, uint32_t cp)
{
	if (cp == '"' || cp == '\\')
		fprintf(j->out, "\\%c", (char)cp);
	else if (cp == '\n' || cp == '\t')
		fputs(cp == '\n' ? "\\n" : "\\t", j->out);
	else if (utf8_is_unsafe(cp) && cp > 0xffff) /* a surrogate pair */
		fprintf(j->out, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)),
			(unsigned)(0xdc00 + (cp & 0x3ff)));
	else if (utf8_is_unsafe(cp))
		fprintf(j->out, "\\u%04x", (unsigned)cp);
	else
		fwrite(s, 1, n, j->out);
}

static void write_text(struct json *j, const char *s, size_t len)
{
	uint32_t cp;

	fputc('"', j->out);
	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_next(s + i, len - i, &cp);
		if (n) {
			write_char(j, s + i, n, cp);
		} else {
			fputs("\\ufffd", j->out);
			n = 1;
		}
	}
	fputc('"', j->out);
}

static void begin(struct json *j, const char *key)
{
	if (j->inside)
		fputc(',', j->out);
	new_line(j);
	j->inside = true;
	if (!key)
		return;
	write_text(j, key, strlen(key));
	fputs(j->pretty ? ": " : ":", j->out);
}

void json_open(struct json *j, const char *key, char bracket)
{
	begin(j, key);
	fputc(bracket, j->out);
	j->depth++;
	j->inside = false;
}

void json_close(struct json *j, char bracket)
{
	j->depth--;
	if (j->inside && j->pretty && !j->depth)
		fputc('\n', j->out);
	else if (j->inside)
		new_line(j);
	fputc(bracket, j->out);
	j->inside = true;
	if (!j->depth)
		fputc('\n', j->out);
}

void json_bytes(struct json *j, const char *key, const void *value, size_t len)
{
	begin(j, key);
	write_text(j, value, len);
}

void json_string(struct json *j, const char *key, const char *value)
{
	if (value)
		json_bytes(j, key, value, strlen(value));
	else
		json_null(j, key);
}

void json_base64(struct json *j, const char *key, const void *value, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *s = value;

	json_open(j, key, '{');
	begin(j, "base64");
	fputc('"', j->out);
	for (size_t i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t v = (uint32_t)s[i] << 16 | (n > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
			     (n > 2 ? s[i + 2] : 0);

		for (size_t k = 0; k < 4; k++)
			fputc(k <= n ? digits[v >> (18 - 6 * k) & 63] : '=', j->out);
	}
	fputc('"', j->out);
	json_close(j, '}');
}

void json_value(struct json *j, const char *key, const char *format, ...)
{
	va_list ap;

	begin(j, key);
	va_start(ap, format);
	vfprintf(j->out, format, ap);
	va_end(ap);
}

void json_ints(struct json *j, const char *key, const int64_t *values, int n)
{
	json_open(j, key, '[');
	for (int i = 0; i < n; i++)
		json_int(j, NULL, values[i]);
	json_close(j, ']');
}

void json_uint_if(struct json *j, const char *key, bool has, uint64_t value)
{
	if (has)
		json_uint(j, key, value);
	else
		json_null(j, key);
}

void json_real_if(struct json *j, const char *key, bool has, double value)
{
	if (has)
		json_value(j, key, "%.3f", value);
	else
		json_null(j, key);
}

void json_time(struct json *j, const char *key, uint64_t ns)
{
	json_string(j, key, ns ? output_time(ns).text : NULL);
}
