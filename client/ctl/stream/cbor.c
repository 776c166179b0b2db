/* SPDX-License-Identifier: MIT
 *
 * A frame has at most 64 bytes of metadata, so recursion ends soon; each item takes a byte.
 */
#include "client/ctl/stream/cbor.h"

#include "client/ctl/json.h"
#include "proto/base/own.h"
#include "proto/base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char tag[] = { 0xd9, 0xd9, 0xf7 };

enum major { UNSIGNED, NEGATIVE, BYTES, TEXT, LIST, MAP, TAG, OTHER };
enum { FALSE_ = 20, TRUE_ = 21, NULL_ = 22, HALF = 25, SINGLE = 26, DOUBLE = 27 };

struct cbor {
	const unsigned char *p;
	size_t n;
	struct json json;
};

struct item {
	enum major major;
	unsigned low;	/* of the first byte: how the number is written */
	uint64_t value; /* the number, or a length */
};

static bool read_head(struct cbor *c, struct item *ret)
{
	size_t bytes = 0;

	if (c->n == 0)
		return false;
	*ret = (struct item){ (enum major)(*c->p >> 5), *c->p & 31u, *c->p & 31u };
	if (ret->low >= 24 && ret->low <= 27)
		bytes = (size_t)1 << (ret->low - 24);
	if (ret->low > 27 || c->n < 1 + bytes)
		return false;
	for (size_t i = 0; i < bytes; i++)
		ret->value = (i ? ret->value << 8 : 0) | c->p[1 + i];
	c->p += 1 + bytes;
	c->n -= 1 + bytes;
	return true;
}

/* The bytes of a string. */
static bool read_bytes(struct cbor *c, uint64_t n, const char **ret)
{
	if (n > c->n)
		return false;
	*ret = (const char *)c->p;
	c->p += n;
	c->n -= n;
	return true;
}

static double half(unsigned bits)
{
	unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
	double x = exponent == 0    ? ldexp(fraction, -24)
		   : exponent != 31 ? ldexp(fraction + 1024, (int)exponent - 25)
		   : fraction	    ? (double)NAN
				    : (double)INFINITY;

	return bits & 0x8000 ? -x : x;
}

static double real(const struct item *i)
{
	uint32_t bits = (uint32_t)i->value;
	double wide;
	float x;

	if (i->low == HALF)
		return half((unsigned)i->value);
	memcpy(&x, &bits, sizeof(x));
	memcpy(&wide, &i->value, sizeof(wide));
	return i->low == SINGLE ? (double)x : wide;
}

static bool write_other(struct cbor *c, const char *key, const struct item *i)
{
	double x;

	if (i->low == FALSE_ || i->low == TRUE_) {
		json_bool(&c->json, key, i->low == TRUE_);
		return true;
	}
	if (i->low != NULL_ && (i->low < HALF || i->low > DOUBLE))
		return false;
	x = i->low == NULL_ ? (double)NAN : real(i);
	if (isfinite(x))
		json_value(&c->json, key, i->low == DOUBLE ? "%.17g" : "%.9g", x);
	else
		json_null(&c->json, key);
	return true;
}

static bool write_string(struct cbor *c, const char *key, const struct item *i)
{
	const char *s;

	if (!read_bytes(c, i->value, &s) || (i->major == TEXT && !utf8_valid(s, i->value)))
		return false;
	if (i->major == TEXT) {
		json_bytes(&c->json, key, s, i->value);
		return true;
	}
	json_open(&c->json, key, '{');
	json_base64(&c->json, "base64", s, i->value);
	json_close(&c->json, '}');
	return true;
}

/* A key of a map as text. */
static bool read_key(struct cbor *c, char *buf, size_t size)
{
	const char *s;
	struct item i;

	if (!read_head(c, &i) || i.major > TEXT || i.major == BYTES)
		return false;
	if (i.major == UNSIGNED)
		snprintf(buf, size, "%" PRIu64, i.value);
	else if (i.major == NEGATIVE)
		snprintf(buf, size, "%" PRId64, -1 - (int64_t)i.value);
	if (i.major != TEXT)
		return true;
	if (!read_bytes(c, i.value, &s) || !utf8_valid(s, i.value) || i.value >= size ||
	    memchr(s, '\0', i.value))
		return false;
	snprintf(buf, size, "%.*s", (int)i.value, s);
	return true;
}

static bool write_item(struct cbor *c, const char *key);

static bool write_many(struct cbor *c, const char *key, const struct item *i)
{
	bool map = i->major == MAP;
	char name[72];

	json_open(&c->json, key, map ? '{' : '[');
	for (uint64_t k = 0; k < i->value; k++)
		if ((map && !read_key(c, name, sizeof(name))) || !write_item(c, map ? name : NULL))
			return false;
	json_close(&c->json, map ? '}' : ']');
	return true;
}

static bool write_item(struct cbor *c, const char *key)
{
	struct item i;

	if (!read_head(c, &i))
		return false;
	switch (i.major) {
	case UNSIGNED:
		json_uint(&c->json, key, i.value);
		return true;
	case NEGATIVE:
		json_int(&c->json, key, -1 - (int64_t)i.value);
		return i.value <= INT64_MAX;
	case BYTES:
	case TEXT:
		return write_string(c, key, &i);
	case LIST:
	case MAP:
		return write_many(c, key, &i);
	case OTHER:
		return write_other(c, key, &i);
	default:
		return false;
	}
}

char *cbor_to_json(const void *bytes, size_t n)
{
	_cleanup_(free_ptr) char *text = NULL;
	struct cbor c = { .p = bytes, .n = n };
	size_t len;
	FILE *out;
	bool good;

	if (n < sizeof(tag) + 1 || memcmp(bytes, tag, sizeof(tag)) != 0)
		return NULL;
	out = open_memstream(&text, &len);
	if (!out)
		return NULL;
	c.p += sizeof(tag);
	c.n -= sizeof(tag);
	json_init(&c.json, out, false);
	good = write_item(&c, NULL) && c.n == 0;
	if (fclose(out) != 0 || !good)
		return NULL;
	text[strcspn(text, "\n")] = '\0';
	return take_ptr(text);
}
