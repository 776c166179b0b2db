/* SPDX-License-Identifier: MIT
 *
 * A frame has at most 64 bytes of metadata, so recursion ends soon; each item takes a byte.
 */
#include "client/ctl/stream/cbor.h"

#include "client/ctl/json.h"
#include "proto/base/cbor.h"
#include "proto/base/own.h"
#include "proto/base/utf8.h"

#include <stdlib.h>

struct writer {
	struct cbor from;
	struct json json;
};

static bool write_other(struct writer *w, const char *key, const struct cbor_item *i)
{
	double x;

	if (i->low == CBOR_FALSE || i->low == CBOR_TRUE) {
		json_bool(&w->json, key, i->low == CBOR_TRUE);
		return true;
	}
	if (i->low != CBOR_NULL && (i->low < CBOR_HALF || i->low > CBOR_DOUBLE))
		return false;
	x = i->low == CBOR_NULL ? (double)NAN : cbor_real(i);
	if (isfinite(x))
		json_value(&w->json, key, i->low == CBOR_DOUBLE ? "%.17g" : "%.9g", x);
	else
		json_null(&w->json, key);
	return true;
}

static bool write_string(struct writer *w, const char *key, const struct cbor_item *i)
{
	const char *s = cbor_take(&w->from, i->value);

	if (!s || (i->major == CBOR_TEXT && !utf8_valid(s, i->value)))
		return false;
	if (i->major == CBOR_TEXT)
		json_bytes(&w->json, key, s, i->value);
	else
		json_base64(&w->json, key, s, i->value);
	return true;
}

/* A key of a map as text. */
static bool read_key(struct writer *w, char *buf, size_t size)
{
	const char *s;
	struct cbor_item i;

	if (!cbor_next(&w->from, &i) || i.major > CBOR_TEXT || i.major == CBOR_BYTES)
		return false;
	if (i.major == CBOR_UNSIGNED)
		snprintf(buf, size, "%" PRIu64, i.value);
	else if (i.major == CBOR_NEGATIVE)
		snprintf(buf, size, "%" PRId64, -1 - (int64_t)i.value);
	if (i.major != CBOR_TEXT)
		return true;
	s = cbor_take(&w->from, i.value);
	if (!s || !utf8_valid(s, i.value) || i.value >= size || memchr(s, '\0', i.value))
		return false;
	snprintf(buf, size, "%.*s", (int)i.value, s);
	return true;
}

static bool write_item(struct writer *w, const char *key);

static bool write_many(struct writer *w, const char *key, const struct cbor_item *i)
{
	bool map = i->major == CBOR_MAP;
	char name[72];

	json_open(&w->json, key, map ? '{' : '[');
	for (uint64_t k = 0; k < i->value; k++)
		if ((map && !read_key(w, name, sizeof(name))) || !write_item(w, map ? name : NULL))
			return false;
	json_close(&w->json, map ? '}' : ']');
	return true;
}

static bool write_item(struct writer *w, const char *key)
{
	struct cbor_item i;

	if (!cbor_next(&w->from, &i))
		return false;
	switch (i.major) {
	case CBOR_UNSIGNED:
		json_uint(&w->json, key, i.value);
		return true;
	case CBOR_NEGATIVE:
		json_int(&w->json, key, -1 - (int64_t)i.value);
		return i.value <= INT64_MAX;
	case CBOR_BYTES:
	case CBOR_TEXT:
		return write_string(w, key, &i);
	case CBOR_LIST:
	case CBOR_MAP:
		return write_many(w, key, &i);
	case CBOR_OTHER:
		return write_other(w, key, &i);
	default:
		return false;
	}
}

char *cbor_to_json(const void *bytes, size_t n)
{
	_cleanup_(free_ptr) char *text = NULL;
	struct writer w = { .from = { bytes, (const unsigned char *)bytes + n } };
	size_t len;
	FILE *out;
	bool good;

	if (!cbor_begins(bytes, n))
		return NULL;
	out = open_memstream(&text, &len);
	if (!out)
		return NULL;
	w.from.at += CBOR_TAG_BYTES;
	json_init(&w.json, out, false);
	good = write_item(&w, NULL) && w.from.at == w.from.end;
	if (fclose(out) != 0 || !good)
		return NULL;
	text[strcspn(text, "\n")] = '\0';
	return take_ptr(text);
}
