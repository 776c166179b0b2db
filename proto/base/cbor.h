/* SPDX-License-Identifier: MIT
 *
 * The items of CBOR (RFC 8949) as they are read one after the other. Everything is inline, because
 * the Python package links with the library only, which exports none of this.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CBOR_TAG "\xd9\xd9\xf7" /* 55799, "self-described CBOR" */
#define CBOR_TAG_BYTES 3u

enum cbor_major {
	CBOR_UNSIGNED,
	CBOR_NEGATIVE,
	CBOR_BYTES,
	CBOR_TEXT,
	CBOR_LIST,
	CBOR_MAP,
	CBOR_TAGGED,
	CBOR_OTHER
};

/* The low bits of CBOR_OTHER. */
enum {
	CBOR_FALSE = 20,
	CBOR_TRUE = 21,
	CBOR_NULL = 22,
	CBOR_HALF = 25,
	CBOR_SINGLE = 26,
	CBOR_DOUBLE = 27
};

struct cbor {
	const unsigned char *at, *end;
};

struct cbor_item {
	enum cbor_major major;
	unsigned low;	/* of the first byte: how the number is written */
	uint64_t value; /* the number, or a length */
};

static inline bool cbor_begins(const void *bytes, size_t n)
{
	return n >= CBOR_TAG_BYTES && memcmp(bytes, CBOR_TAG, CBOR_TAG_BYTES) == 0;
}

/* The head of the next item. False: the bytes end, or the length is indefinite. */
static inline bool cbor_next(struct cbor *c, struct cbor_item *ret)
{
	size_t left = (size_t)(c->end - c->at), bytes = 0;

	if (left == 0)
		return false;
	*ret = (struct cbor_item){ (enum cbor_major)(*c->at >> 5), *c->at & 31u, *c->at & 31u };
	if (ret->low >= 24 && ret->low <= 27)
		bytes = (size_t)1 << (ret->low - 24);
	if (ret->low > 27 || left < 1 + bytes)
		return false;
	for (size_t i = 1; i <= bytes; i++)
		ret->value = (i > 1 ? ret->value << 8 : 0) | c->at[i];
	c->at += 1 + bytes;
	return true;
}

/* The bytes of a string of n; NULL: there are fewer. */
static inline const char *cbor_take(struct cbor *c, uint64_t n)
{
	const char *bytes = (const char *)c->at;

	if (n > (uint64_t)(c->end - c->at))
		return NULL;
	c->at += n;
	return bytes;
}

static inline double cbor_half(unsigned bits)
{
	unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
	double x = exponent == 0    ? ldexp(fraction, -24)
		   : exponent != 31 ? ldexp(fraction + 1024, (int)exponent - 25)
		   : fraction	    ? (double)NAN
				    : (double)INFINITY;

	return bits & 0x8000 ? -x : x;
}

/* Of CBOR_HALF, CBOR_SINGLE or CBOR_DOUBLE. */
static inline double cbor_real(const struct cbor_item *i)
{
	uint32_t bits = (uint32_t)i->value;
	double wide;
	float x;

	if (i->low == CBOR_HALF)
		return cbor_half(bits);
	memcpy(&x, &bits, sizeof(x));
	memcpy(&wide, &i->value, sizeof(wide));
	return i->low == CBOR_SINGLE ? (double)x : wide;
}
