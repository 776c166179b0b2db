/* SPDX-License-Identifier: MIT
 *
 * The part of Python's syntax that a .npy header is written in, and the size of what a descr
 * describes. Input is hostile: nothing is read past the end, a record nests at most eight deep, and
 * every sum and product is checked. Nothing is allocated and nothing is copied.
 */
#include "client/ctl/descr.h"

#include "proto/limits.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX 8
#define ITEMSIZE_MAX UINT32_MAX

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

bool scan_char(struct scan *s, char c)
{
	if (!at(s, c))
		return false;
	s->p++;
	return true;
}

int scan_string(struct scan *s, const char **ret, size_t *ret_len)
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

int scan_int(struct scan *s, int64_t *ret)
{
	const char *start;
	int64_t v = 0;

	skip_blanks(s);
	start = s->p;
	for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s->p - '0', &v))
			return wrong(s, EOVERFLOW, "a number is too large");
	if (s->p == start)
		return wrong(s, EINVAL, "a number of 0 or more is missing");
	/* Python 2 wrote its longs so. */
	if (s->p < s->end && *s->p == 'L')
		s->p++;
	*ret = v;
	return 0;
}

int scan_bool(struct scan *s, bool *ret)
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

int scan_tuple(struct scan *s, int64_t *ret, uint32_t max, uint32_t *ret_n)
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

/* "<f4", "|S10", "<M8[ns]": the size after the kind, times four for U (UCS-4). */
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
		return wrong(s, ENOTSUP, "a type that is not known");
	if (scan_int(&digits, &v) < 0 || v > ITEMSIZE_MAX)
		return wrong(s, EINVAL, "a type without a size, or with too large a one");
	if (digits.p < digits.end && (*digits.p != '[' || !strchr("mM", kind)))
		return wrong(s, EINVAL, "a type with something behind its size");
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

/* "'name'" or "('title', 'name')". */
static int skip_name(struct scan *s)
{
	const char *t;
	size_t len;
	int r;

	if (!scan_char(s, '('))
		return scan_string(s, &t, &len);
	r = scan_string(s, &t, &len);
	if (r < 0)
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

/* "'name', format)" or "'name', format, shape)", behind the "(". */
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

/* The fields of a list, behind the "[". */
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

int scan_descr(struct scan *s, uint64_t *ret_itemsize, bool *ret_plain)
{
	*ret_plain = !at(s, '[');
	return format_size(s, 0, ret_itemsize);
}

bool descr_fits(const char *text, size_t len, uint64_t itemsize)
{
	struct scan s = { text, text + len, NULL };
	uint64_t size;
	bool plain;

	return scan_descr(&s, &size, &plain) == 0 && s.p == s.end && size == itemsize;
}
