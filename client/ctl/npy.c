/* SPDX-License-Identifier: MIT
 *
 * Headers of .npy files, from bytes to a struct npy and back. Both are pure functions of buffers,
 * so that a fuzzer can drive them; who reads files, and how, is transfer.c.
 * A file's dtype that gpushm has no name for (text, dates, long doubles) becomes a record of its
 * size whose descr is the type's own literal: the bytes and the type come back as they went in.
 */
#include "client/ctl/npy.h"

#include "client/ctl/descr.h"
#include "proto/base/own.h"
#include "proto/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char magic[6] = { '\x93', 'N', 'U', 'M', 'P', 'Y' };

#define refuse(err, error, ...) (snprintf((err)->text, sizeof((err)->text), __VA_ARGS__), -(error))

static size_t prelude_size(unsigned char major)
{
	return major == 1 ? 10 : 12;
}

int npy_header_size(const void *prelude, size_t *ret, struct npy_error *err)
{
	const unsigned char *p = prelude;
	size_t len;

	if (memcmp(p, magic, sizeof(magic)))
		return refuse(err, EINVAL, "no .npy file: it does not begin with \\x93NUMPY");
	if (p[6] < 1 || p[6] > 3 || p[7])
		return refuse(err, ENOTSUP, ".npy version %d.%d; known are 1.0, 2.0 and 3.0", p[6],
			      p[7]);
	len = p[8] | (size_t)p[9] << 8;
	if (p[6] > 1)
		len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
	len += prelude_size(p[6]);
	if (len > NPY_HEADER_MAX)
		return refuse(err, EFBIG, "its header has %zu bytes; at most %u are read", len,
			      NPY_HEADER_MAX);
	if (len < NPY_PRELUDE)
		return refuse(err, EINVAL, "its header is empty");
	*ret = len;
	return 0;
}

static int set_record(const char *text, size_t len, uint64_t itemsize, struct npy *ret,
		      struct npy_error *err)
{
	if (!itemsize)
		return refuse(err, EINVAL, "its elements have no bytes");
	if (itemsize > UINT32_MAX)
		return refuse(err, EOVERFLOW, "its elements are larger than 4 GiB");
	if (len > DESCR_MAX)
		return refuse(err, ENOTSUP, "its descr has %zu bytes; at most %u fit a buffer", len,
			      DESCR_MAX);
	ret->dtype = (struct dtype){ DTYPE_RECORD, 0, 1, (uint32_t)itemsize };
	if (memchr(text, '\0', len))
		return refuse(err, EINVAL, "its descr has a NUL byte");
	memcpy(ret->descr, text, len);
	ret->descr[len] = '\0';
	return 0;
}

/* text: the literal with its quotes. */
static int set_plain(const char *text, size_t len, uint64_t itemsize, struct npy *ret,
		     struct npy_error *err)
{
	char typestr[16] = "";

	if (len - 2 < sizeof(typestr))
		memcpy(typestr, text + 1, len - 2);
	if (typestr[0] == '>' && itemsize > 1)
		return refuse(err, ENOTSUP,
			      "its data are big-endian (%s); write them anew with "
			      "a.astype(a.dtype.newbyteorder('<'))",
			      typestr);
	if (dtype_from_typestr(typestr, &ret->dtype) == 0)
		return 0;
	return set_record(text, len, itemsize, ret, err);
}

static int parse_descr(struct scan *s, struct npy *ret, struct npy_error *err)
{
	const char *start;
	uint64_t itemsize;
	bool plain;
	int r;

	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n'))
		s->p++;
	start = s->p;
	r = scan_descr(s, &itemsize, &plain);
	if (r < 0)
		return refuse(err, -r, "its descr can't be used: %s", s->wrong);
	ret->descr[0] = '\0';
	return (plain ? set_plain : set_record)(start, (size_t)(s->p - start), itemsize, ret, err);
}

static bool is_key(const char *key, size_t len, const char *name)
{
	return len == strlen(name) && !memcmp(key, name, len);
}

/* One "'key': value". Sets the key's bit in *seen. */
static int parse_entry(struct scan *s, struct npy *ret, unsigned *seen, struct npy_error *err)
{
	const char *key;
	size_t len;
	unsigned bit;
	int r = scan_string(s, &key, &len);

	if (r < 0 || !scan_char(s, ':'))
		return refuse(err, EINVAL, "its header is no Python dict");
	if (is_key(key, len, "descr")) {
		bit = 1;
		r = parse_descr(s, ret, err);
		if (r < 0)
			return r;
	} else if (is_key(key, len, "fortran_order")) {
		bit = 2;
		r = scan_bool(s, &ret->fortran);
	} else if (is_key(key, len, "shape")) {
		bit = 4;
		r = scan_tuple(s, ret->shape, DIMENSIONS_MAX, &ret->ndim);
	} else {
		return refuse(err, EINVAL, "its header has a key that is not known");
	}
	if (r < 0)
		return refuse(err, -r, "its header is malformed: %s", s->wrong);
	if (*seen & bit)
		return refuse(err, EINVAL, "its header has a key twice");
	*seen |= bit;
	return 0;
}

/* A dimension of 0 makes an array without data, yet the others must make sense: NumPy refuses
 * their product above 2^63 - 1, too. */
static int measure(struct npy *npy)
{
	uint64_t bytes = dtype_bits(npy->dtype) / 8;
	bool empty = false;

	for (uint32_t i = 0; i < npy->ndim; i++) {
		empty |= npy->shape[i] == 0;
		if (npy->shape[i] && __builtin_mul_overflow(bytes, (uint64_t)npy->shape[i], &bytes))
			return -EOVERFLOW;
	}
	if (bytes > INT64_MAX)
		return -EOVERFLOW;
	npy->bytes = empty ? 0 : bytes;
	return 0;
}

/* Versions 1 and 2 are Latin-1, version 3 is UTF-8; a buffer's descr is UTF-8. */
static int decode_descr(struct npy *npy, bool utf8, struct npy_error *err)
{
	char latin1[DESCR_MAX + 1];
	size_t n = 0;

	if (utf8)
		return utf8_valid(npy->descr, strlen(npy->descr))
			       ? 0
			       : refuse(err, EINVAL, "its header is not valid UTF-8");
	strcpy(latin1, npy->descr);
	for (const char *c = latin1; *c; c++) {
		unsigned char v = (unsigned char)*c;

		if (n + (v < 0x80 ? 1 : 2) > DESCR_MAX)
			return refuse(err, ENOTSUP, "its descr is above %u bytes", DESCR_MAX);
		if (v >= 0x80)
			npy->descr[n++] = (char)(0xc0 | v >> 6);
		npy->descr[n++] = (char)(v < 0x80 ? v : 0x80 | (v & 0x3f));
	}
	npy->descr[n] = '\0';
	return 0;
}

int npy_parse(const void *header, size_t len, struct npy *ret, struct npy_error *err)
{
	const char *h = header;
	struct scan s = { NULL, h + len, NULL };
	size_t expected;
	unsigned seen = 0;
	bool comma = true;
	int r;

	if (len < NPY_PRELUDE)
		return refuse(err, EINVAL, "no .npy file: it is too short");
	r = npy_header_size(header, &expected, err);
	if (r < 0)
		return r;
	if (expected != len)
		return refuse(err, EINVAL, "its header is cut short");
	s.p = h + prelude_size((unsigned char)h[6]);
	if (!scan_char(&s, '{'))
		return refuse(err, EINVAL, "its header is no Python dict");
	while (!scan_char(&s, '}')) {
		if (!comma)
			return refuse(err, EINVAL, "its header is no Python dict");
		r = parse_entry(&s, ret, &seen, err);
		if (r < 0)
			return r;
		comma = scan_char(&s, ',');
	}
	scan_char(&s, '\0'); /* skips the padding */
	if (seen != 7 || s.p != s.end)
		return refuse(err, EINVAL,
			      "its header must have descr, fortran_order, shape and nothing else");
	r = decode_descr(ret, h[6] == 3, err);
	if (r < 0)
		return r;
	r = measure(ret);
	return r < 0 ? refuse(err, -r, "its shape times its item size is above 2^63 - 1") : 0;
}

/* The literal for a dtype, malloc'd. A descr comes from whoever made the buffer: what is no
 * literal of the right size is not repeated, and the elements are then plain bytes ("|V40"). */
static int format_descr(const struct npy *npy, char **ret)
{
	char typestr[32];
	uint64_t bits = dtype_bits(npy->dtype);
	int r = 0;

	if (npy->dtype.code == DTYPE_RECORD && npy->descr[0] &&
	    descr_fits(npy->descr, strlen(npy->descr), bits / 8)) {
		*ret = strdup(npy->descr);
		return *ret ? 0 : -ENOMEM;
	}
	/* No kind of float8 has a letter in NumPy; a record, too, can have eight bits. */
	if (npy->dtype.code >= DTYPE_FLOAT8_E3M4 && npy->dtype.code != DTYPE_RECORD && bits == 8 &&
	    npy->dtype.lanes == 1)
		snprintf(typestr, sizeof(typestr), "|V1");
	else
		r = dtype_to_typestr(npy->dtype, typestr, sizeof(typestr));
	if (r < 0)
		return r;
	return asprintf(ret, "'%s'", typestr) < 0 ? -ENOMEM : 0;
}

static size_t format_shape(const struct npy *npy, char *buf, size_t size)
{
	size_t n = 0;

	for (uint32_t i = 0; i < npy->ndim; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? ", " : "",
				      npy->shape[i]);
	n += (size_t)snprintf(buf + n, size - n, "%s", npy->ndim == 1 ? "," : "");
	return n;
}

static bool is_ascii(const char *s)
{
	while (*s && (unsigned char)*s < 0x80)
		s++;
	return !*s;
}

int npy_format(const struct npy *npy, char **ret, size_t *ret_len)
{
	_cleanup_(free_ptr) char *descr = NULL, *dict = NULL, *out = NULL;
	char shape[DIMENSIONS_MAX * 22 + 2] = "";
	size_t len, total, prelude;
	unsigned char major;
	int r, n;

	r = format_descr(npy, &descr);
	if (r < 0)
		return r;
	format_shape(npy, shape, sizeof(shape));
	n = asprintf(&dict, "{'descr': %s, 'fortran_order': %s, 'shape': (%s), }", descr,
		     npy->fortran ? "True" : "False", shape);
	if (n < 0) {
		dict = NULL;
		return -ENOMEM;
	}
	major = is_ascii(dict) ? 1 : 3;
	prelude = prelude_size(major);
	/* The data start on a multiple of 64, for who maps the file; the header ends in \n. */
	total = (prelude + (size_t)n + 1 + 63) / 64 * 64;
	out = malloc(total);
	if (!out)
		return -ENOMEM;
	memset(out, ' ', total);
	memcpy(out, magic, sizeof(magic));
	memcpy(out + prelude, dict, (size_t)n);
	out[total - 1] = '\n';
	out[6] = (char)major;
	out[7] = 0;
	len = total - prelude;
	for (size_t i = 8; i < prelude; i++, len >>= 8)
		out[i] = (char)(len & 0xff);
	*ret = take_ptr(out);
	*ret_len = total;
	return 0;
}
