/* SPDX-License-Identifier: MIT
 *
 * Headers of .npy files, from bytes to a struct npy and back. All functions but npy_read() are pure
 * functions of buffers, so that a fuzzer can drive them.
 *
 * A header is the text of a Python dict. Input is hostile: nothing is read past the end, a record
 * nests at most eight deep, and every sum and product is checked.
 *
 * A dtype that gpushm has no name for (text, dates, long doubles) becomes a record of its size
 * whose descr is the type's own literal: bytes and type come back unchanged.
 */
#include "client/ctl/npy.h"

#include "client/ctl/transfer.h"
#include "proto/base/own.h"
#include "proto/base/text.h"
#include "proto/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 8
#define ITEMSIZE_MAX UINT32_MAX

#define NOT_NPY "not a .npy file (gpushmctl create --from takes plain bytes): "

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

	/* A length that is not absurd, and the start of a JSON object. */
	if (p[8] == '{' && !memcmp(p + 4, "\0\0\0", 4))
		return refuse(err, EINVAL, "a safetensors file: gpushmctl load FILE NAME takes it");
	if (!memcmp(p, "PK\3\4", 4))
		return refuse(
			err, EINVAL,
			"an .npz or zip archive: unzip it, and put its files by gpushmctl put "
			"NAME ARRAY=FILE.npy...");
	if (memcmp(p, magic, sizeof(magic)))
		return refuse(err, EINVAL, NOT_NPY "it does not begin with \\x93NUMPY");
	if (p[6] < 1 || p[6] > 3 || p[7])
		return refuse(err, ENOTSUP, ".npy version %d.%d; 1.0, 2.0 and 3.0 are supported",
			      p[6], p[7]);
	len = p[8] | (size_t)p[9] << 8;
	if (p[6] > 1)
		len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
	len += prelude_size(p[6]);
	if (len > NPY_HEADER_MAX)
		return refuse(err, EFBIG, "its header has %zu bytes; at most %u are supported", len,
			      NPY_HEADER_MAX);
	if (len < NPY_PRELUDE)
		return refuse(err, EINVAL, "its header is empty");
	*ret = len;
	return 0;
}

/* ---- Python literals ---- */

/* A position in a text that is read from left to right. */
struct scan {
	const char *p, *end;
	const char *wrong; /* static text: why the last call failed */
};

#define wrong(s, error, text) ((s)->wrong = (text), -(error))

static void skip_blanks(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n'))
		s->p++;
}

static bool at(struct scan *s, char c)
{
	skip_blanks(s);
	return s->p < s->end && *s->p == c;
}

/* Skips blanks, then takes the character; or returns false and takes nothing. */
static bool scan_char(struct scan *s, char c)
{
	if (!at(s, c))
		return false;
	s->p++;
	return true;
}

/* Takes a string in quotes; *ret is what lies between them, with its escapes. */
static int scan_string(struct scan *s, const char **ret, size_t *ret_len)
{
	const char *start;
	char quote;

	skip_blanks(s);
	if (s->p == s->end || (*s->p != '\'' && *s->p != '"'))
		return wrong(s, EINVAL, "a string in quotes is missing");
	quote = *s->p++;
	start = s->p;
	while (s->p < s->end && *s->p != quote)
		s->p += *s->p == '\\' && s->end - s->p > 1 ? 2 : 1;
	if (s->p == s->end)
		return wrong(s, EINVAL, "a string does not end");
	*ret = start;
	*ret_len = (size_t)(s->p++ - start);
	return 0;
}

/* Takes a number of 0 or more. */
static int scan_int(struct scan *s, int64_t *ret)
{
	const char *start;
	int64_t v = 0;

	skip_blanks(s);
	start = s->p;
	for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s->p - '0', &v))
			return wrong(s, EOVERFLOW, "a number is too large");
	if (s->p == start)
		return wrong(s, EINVAL, "a number is missing");
	/* Python 2 writes a long integer as "3L". */
	if (s->p < s->end && *s->p == 'L')
		s->p++;
	*ret = v;
	return 0;
}

static int scan_bool(struct scan *s, bool *ret)
{
	skip_blanks(s);
	for (int v = 0; v < 2; v++) {
		const char *word = v ? "True" : "False";
		size_t len = strlen(word);

		if ((size_t)(s->end - s->p) < len || memcmp(s->p, word, len))
			continue;
		s->p += len;
		*ret = v;
		return 0;
	}
	return wrong(s, EINVAL, "True or False is missing");
}

/* Takes "()", "(3,)" or "(3, 4)". -ENOTSUP above max numbers. */
static int scan_tuple(struct scan *s, int64_t *ret, uint32_t max, uint32_t *ret_n)
{
	uint32_t n = 0;
	bool comma = true;
	int r;

	if (!scan_char(s, '('))
		return wrong(s, EINVAL, "a shape in parentheses is missing");
	while (!scan_char(s, ')')) {
		int64_t v;

		if (!comma)
			return wrong(s, EINVAL, "a comma is missing in a shape");
		r = scan_int(s, &v);
		if (r < 0)
			return r;
		if (n == max)
			return wrong(s, ENOTSUP, "more than 32 dimensions");
		ret[n++] = v;
		comma = scan_char(s, ',');
	}
	/* "(3)" is a number in Python. */
	if (n == 1 && !comma)
		return wrong(s, EINVAL, "a shape of one dimension needs a comma: (3,)");
	*ret_n = n;
	return 0;
}

/* The size of "<f4", "|S10" or "<M8[ns]": the number after the kind, times four for U (UCS-4). */
static int typestr_size(struct scan *s, const char *t, size_t len, uint64_t *ret)
{
	struct scan digits = { t, t + len, NULL };
	int64_t v;
	char kind;

	if (len && strchr("<>=|", *t))
		digits.p++;
	if (digits.p == digits.end)
		return wrong(s, EINVAL, "an empty type");
	kind = *digits.p++;
	if (kind == 'O')
		return wrong(s, ENOTSUP, "Python objects can't be shared");
	if (!strchr("biufcmMSaUV", kind) || !kind)
		return wrong(s, ENOTSUP, "an unknown type");
	if (scan_int(&digits, &v) < 0 || v > ITEMSIZE_MAX)
		return wrong(s, EINVAL, "a type without a size, or with too large a one");
	if (digits.p < digits.end && (*digits.p != '[' || !strchr("mM", kind)))
		return wrong(s, EINVAL, "a type with text after its size");
	*ret = (uint64_t)v * (kind == 'U' ? 4 : 1);
	return 0;
}

static int record_size(struct scan *s, unsigned depth, uint64_t *ret);

static int format_size(struct scan *s, unsigned depth, uint64_t *ret)
{
	const char *t;
	size_t len;
	int r;

	if (scan_char(s, '['))
		return depth == DEPTH_MAX ? wrong(s, ENOTSUP, "records nested more than 8 deep")
					  : record_size(s, depth + 1, ret);
	r = scan_string(s, &t, &len);
	return r < 0 ? r : typestr_size(s, t, len, ret);
}

/* Skips "'name'" or "('title', 'name')". */
static int skip_name(struct scan *s)
{
	bool titled = scan_char(s, '(');
	const char *t;
	size_t len;
	int r = scan_string(s, &t, &len);

	if (r < 0 || !titled)
		return r;
	if (!scan_char(s, ','))
		return wrong(s, EINVAL, "a title without a name");
	r = scan_string(s, &t, &len);
	if (r < 0)
		return r;
	return scan_char(s, ')') ? 0 : wrong(s, EINVAL, "a title and name do not end");
}

/* The product of a field's shape, which is a tuple or one number. */
static int subarray_count(struct scan *s, uint64_t *ret)
{
	int64_t shape[DIMENSIONS_MAX];
	uint32_t n = 1;
	uint64_t count = 1;
	int r;

	if (at(s, '('))
		r = scan_tuple(s, shape, DIMENSIONS_MAX, &n);
	else
		r = scan_int(s, &shape[0]);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		if (__builtin_mul_overflow(count, (uint64_t)shape[i], &count))
			return wrong(s, EOVERFLOW, "a record's field is too large");
	*ret = count;
	return 0;
}

/* The size of "'name', format)" or "'name', format, shape)", after the "(". */
static int field_size(struct scan *s, unsigned depth, uint64_t *ret)
{
	uint64_t size, count = 1;
	int r = skip_name(s);

	if (r < 0)
		return r;
	if (!scan_char(s, ','))
		return wrong(s, EINVAL, "a field without a type");
	r = format_size(s, depth, &size);
	if (r < 0)
		return r;
	if (scan_char(s, ',') && !at(s, ')')) {
		r = subarray_count(s, &count);
		if (r < 0)
			return r;
		scan_char(s, ',');
	}
	if (!scan_char(s, ')'))
		return wrong(s, EINVAL, "a field does not end");
	if (__builtin_mul_overflow(size, count, ret) || *ret > ITEMSIZE_MAX)
		return wrong(s, EOVERFLOW, "a record's field is too large");
	return 0;
}

/* The size of a list of fields, after the "[". */
static int record_size(struct scan *s, unsigned depth, uint64_t *ret)
{
	uint64_t total = 0, size;
	bool comma = true;
	int r;

	while (!scan_char(s, ']')) {
		if (!comma || !scan_char(s, '('))
			return wrong(s, EINVAL, "a record's list of fields is malformed");
		r = field_size(s, depth, &size);
		if (r < 0)
			return r;
		total += size;
		if (total > ITEMSIZE_MAX)
			return wrong(s, EOVERFLOW, "a record is too large");
		comma = scan_char(s, ',');
	}
	*ret = total;
	return 0;
}

/* Takes NumPy's descr: "'<f4'", or for a record a list such as "[('id', '<i8'), ('box', '<f4',
 * (2, 2)), ('', '|V4')]". *ret_plain: a string, not a list. 0; -EINVAL; -ENOTSUP (objects, bit
 * fields); -EOVERFLOW above 4 GiB. */
static int scan_descr(struct scan *s, uint64_t *ret_itemsize, bool *ret_plain)
{
	*ret_plain = !at(s, '[');
	return format_size(s, 0, ret_itemsize);
}

/* Whether the text is exactly one descr for elements of that size. */
static bool descr_fits(const char *text, size_t len, uint64_t itemsize)
{
	struct scan s = { text, text + len, NULL };
	uint64_t size;
	bool plain;

	return scan_descr(&s, &size, &plain) == 0 && s.p == s.end && size == itemsize;
}

/* ---- the header ---- */

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

/* text is the literal with its quotes. */
static int set_plain(const char *text, size_t len, uint64_t itemsize, struct npy *ret,
		     struct npy_error *err)
{
	char typestr[16] = "";

	if (len - 2 < sizeof(typestr))
		memcpy(typestr, text + 1, len - 2);
	if (typestr[0] == '>' && itemsize > 1)
		return refuse(err, ENOTSUP,
			      "its data are big-endian (%s); convert them with "
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

	skip_blanks(s);
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

/* Takes one "'key': value" and sets the key's bit in *seen. */
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
		return refuse(err, EINVAL, "its header has an unknown key");
	}
	if (r < 0)
		return refuse(err, -r, "its header is malformed: %s", s->wrong);
	if (*seen & bit)
		return refuse(err, EINVAL, "its header has a key twice");
	*seen |= bit;
	return 0;
}

/* An array with a dimension of 0 has no data, but the product of the others must fit all the same:
 * NumPy also refuses it above 2^63 - 1. */
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
		return refuse(err, EINVAL, NOT_NPY "it is too short");
	r = npy_header_size(header, &expected, err);
	if (r < 0)
		return r;
	if (expected != len)
		return refuse(err, EINVAL, "its header is cut short");
	s.p = h + prelude_size((unsigned char)h[6]);
	ret->room = 0;
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

static int read_exactly(int fd, char *buf, size_t size, struct npy_error *err)
{
	ssize_t n = transfer_read(fd, buf, size);

	if (n < 0)
		return refuse(err, (int)-n, "%s", strerror((int)-n));
	return (size_t)n == size ? 0 : refuse(err, EINVAL, NOT_NPY "it is too short");
}

int npy_read(int fd, struct npy *ret, struct npy_error *err)
{
	_cleanup_(free_ptr) char *header = malloc(NPY_HEADER_MAX);
	size_t len;
	int r = header ? read_exactly(fd, header, NPY_PRELUDE, err)
		       : refuse(err, ENOMEM, "out of memory");

	if (r == 0)
		r = npy_header_size(header, &len, err);
	if (r == 0)
		r = read_exactly(fd, header + NPY_PRELUDE, len - NPY_PRELUDE, err);
	return r < 0 ? r : npy_parse(header, len, ret, err);
}

/* The literal for a dtype, malloc'd. The buffer's creator chose the descr: if it is no literal of
 * the right size it is not written, and the elements are plain bytes ("|V40"). */
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
	/* NumPy has no letter for float8; a record can have eight bits, too. */
	if (npy->dtype.code >= DTYPE_FLOAT8_E3M4 && npy->dtype.code != DTYPE_RECORD && bits == 8 &&
	    npy->dtype.lanes == 1)
		snprintf(typestr, sizeof(typestr), "|V1");
	else
		r = dtype_to_typestr(npy->dtype, typestr, sizeof(typestr));
	if (r < 0)
		return r;
	return asprintf(ret, "'%s'", typestr) < 0 ? -ENOMEM : 0;
}

static void format_shape(const struct npy *npy, char *buf, size_t size)
{
	for (uint32_t i = 0; i < npy->ndim; i++)
		text_append(buf, size, "%s%" PRId64, i ? ", " : "", npy->shape[i]);
	text_append(buf, size, "%s", npy->ndim == 1 ? "," : "");
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
	/* The data start on a multiple of 64, for programs that map the file. */
	total = (prelude + (size_t)n + 1 + 63) / 64 * 64;
	if (total < npy->room)
		total = npy->room;
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
