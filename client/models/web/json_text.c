/* SPDX-License-Identifier: MIT */
#include "client/models/web/json_text.h"

#include "proto/base/own.h"

#include <nettle/base64.h>
#include <string.h>

size_t json_text_values(const char *text, size_t n)
{
	bool in_string = false;
	size_t values = 1;

	for (size_t i = 0; i < n; i++) {
		if (in_string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			in_string = !in_string;
		else if (!in_string)
			values += text[i] == ',' || text[i] == '[' || text[i] == '{';
	}
	return values;
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
