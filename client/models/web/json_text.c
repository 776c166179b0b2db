/* SPDX-License-Identifier: MIT
 *
 * Brackets are counted and not matched: a text whose brackets do not match is cut somewhere, and
 * jansson refuses the piece.
 */
#include "client/models/web/json_text.h"

#include "proto/base/own.h"

#include <nettle/base64.h>
#include <string.h>

/* The index behind a string whose '"' is at i; n if it does not end. */
static size_t skip_string(const char *text, size_t n, size_t i)
{
	for (i++; i < n && text[i] != '"'; i++)
		i += text[i] == '\\';
	return i < n ? i + 1 : n;
}

size_t json_text_values(const char *text, size_t n)
{
	size_t values = 1;

	for (size_t i = 0; i < n;) {
		if (text[i] == '"') {
			i = skip_string(text, n, i);
			continue;
		}
		values += text[i] == ',' || text[i] == '[' || text[i] == '{';
		i++;
	}
	return values;
}

size_t json_text_member(const char *text, size_t n)
{
	size_t depth = 0;

	for (size_t i = 0; i < n;) {
		char c = text[i];

		if (c == '"') {
			i = skip_string(text, n, i);
			continue;
		}
		if (depth == 0 && (c == ',' || c == '}'))
			return i;
		depth += c == '[' || c == '{';
		depth -= depth > 0 && (c == ']' || c == '}');
		i++;
	}
	return n;
}

/* The text of an object with one member, which is not copied for that. */
struct object_text {
	const char *member;
	size_t n, at; /* at: of n + 2 */
};

static size_t read_object(void *to, size_t room, void *user)
{
	struct object_text *o = user;
	size_t part = o->at <= o->n ? o->n - (o->at - 1) : 0;

	if (room == 0 || o->at == o->n + 2)
		return 0;
	if (o->at == 0 || part == 0) {
		*(char *)to = o->at++ == 0 ? '{' : '}';
		return 1;
	}
	part = part < room ? part : room;
	memcpy(to, o->member + o->at - 1, part);
	o->at += part;
	return part;
}

json_t *json_text_load_member(const char *text, size_t n, json_error_t *ret_error)
{
	struct object_text o = { .member = text, .n = n };
	json_t *object = json_load_callback(read_object, &o, JSON_REJECT_DUPLICATES, ret_error);

	ret_error->position -= ret_error->position > 0;
	return object;
}

bool json_text_number(const json_t *value, uint64_t max, uint64_t *ret)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret = (uint64_t)json_integer_value(value);
	return *ret <= max;
}

int json_text_decode(const json_t *value, size_t max, void **ret, size_t *ret_n)
{
	const char *text = json_string_value(value);
	size_t length = json_string_length(value), n;
	_cleanup_(free_ptr) uint8_t *bytes = NULL;
	struct base64_decode_ctx ctx;

	if (!text || length / 4 * 3 > max + 3)
		return -EBADMSG;
	n = BASE64_DECODE_LENGTH(length);
	bytes = malloc(n + 1);
	if (!bytes)
		return -ENOMEM;
	base64_decode_init(&ctx);
	if (!base64_decode_update(&ctx, &n, bytes, length, text) || !base64_decode_final(&ctx) ||
	    n > max)
		return -EBADMSG;
	*ret = take_ptr(bytes);
	*ret_n = n;
	return 0;
}

json_t *json_text_encode(const void *bytes, size_t n)
{
	size_t length = BASE64_ENCODE_RAW_LENGTH(n);
	_cleanup_(free_ptr) char *text = malloc(length + 1);

	if (!text)
		return NULL;
	base64_encode_raw(text, n, bytes);
	return json_stringn(text, length);
}

json_t *json_text_made(json_t *value, int r)
{
	if (r >= 0)
		return value;
	json_decref(value);
	return NULL;
}
