/* SPDX-License-Identifier: MIT
 *
 * A writer of one JSON document (RFC 8259). The caller keeps objects and arrays balanced; the
 * writer adds the commas, the escapes and, if it is pretty, the lines.
 */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out; /* borrowed */
	bool pretty;
	unsigned depth;
	bool inside; /* the innermost object or array has a member */
};

void json_init(struct json *j, FILE *out, bool pretty);

/* bracket: '{' or '['. key is NULL in an array and at the top. */
void json_open(struct json *j, const char *key, char bracket);
/* bracket: '}' or ']'. The last one ends the document and its line. */
void json_close(struct json *j, char bracket);

/* Each byte that is not valid UTF-8 becomes U+FFFD. NULL is null. */
void json_string(struct json *j, const char *key, const char *value);
void json_bytes(struct json *j, const char *key, const void *value, size_t len);
/* {"base64": "..."}, for bytes that are no text: RFC 4648 with padding. */
void json_base64(struct json *j, const char *key, const void *value, size_t len);
void json_ints(struct json *j, const char *key, const int64_t *values, int n); /* an array */
/* A time in ns since 1970 as an ISO 8601 string; null for 0. */
void json_time(struct json *j, const char *key, uint64_t ns);

/* A value that needs no escapes, as printf() writes it. */
void json_value(struct json *j, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define json_uint(j, key, value) json_value(j, key, "%" PRIu64, (uint64_t)(value))
#define json_int(j, key, value) json_value(j, key, "%" PRId64, (int64_t)(value))
/* Writes the number, or null if has is false; a real one with three decimal places. */
void json_uint_if(struct json *j, const char *key, bool has, uint64_t value);
void json_real_if(struct json *j, const char *key, bool has, double value);
/* A string of digits, because many readers lose precision above 2^53 (RFC 7493). */
#define json_id(j, key, value) json_value(j, key, "\"%" PRIu64 "\"", (uint64_t)(value))
#define json_hex(j, key, value) json_value(j, key, "\"%016" PRIx64 "\"", (uint64_t)(value))
#define json_bool(j, key, value) json_value(j, key, (value) ? "true" : "false")
#define json_null(j, key) json_value(j, key, "null")
