/* SPDX-License-Identifier: MIT
 *
 * The writer. It streams: nothing is kept but the depth, so a list of any length costs no memory.
 * Write errors are the stream's; main looks at them once, when all has been written.
 */
#include "client/ctl/json.h"

#include "client/ctl/output.h"
#include "proto/base/utf8.h"

#include <inttypes.h>
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
	switch (cp) {
	case '"':
		fputs("\\\"", j->out);
		return;
	case '\\':
		fputs("\\\\", j->out);
		return;
	case '\n':
		fputs("\\n", j->out);
		return;
	case '\t':
		fputs("\\t", j->out);
		return;
	}
	if (utf8_is_control(cp))
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

	begin(j, key);
	fputc('"', j->out);
	for (size_t i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t v = (uint32_t)s[i] << 16 | (n > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
			     (n > 2 ? s[i + 2] : 0);

		for (size_t k = 0; k < 4; k++)
			fputc(k <= n ? digits[v >> (18 - 6 * k) & 63] : '=', j->out);
	}
	fputc('"', j->out);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->out, "%" PRIu64, value);
}

void json_id(struct json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->out, "\"%" PRIu64 "\"", value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
	begin(j, key);
	fprintf(j->out, "%" PRId64, value);
}

void json_hex(struct json *j, const char *key, uint64_t value)
{
	begin(j, key);
	fprintf(j->out, "\"%016" PRIx64 "\"", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	begin(j, key);
	fputs(value ? "true" : "false", j->out);
}

void json_null(struct json *j, const char *key)
{
	begin(j, key);
	fputs("null", j->out);
}

void json_time(struct json *j, const char *key, uint64_t ns)
{
	char buf[40];

	if (ns)
		json_string(j, key, output_time(ns, buf, sizeof(buf)));
	else
		json_null(j, key);
}
