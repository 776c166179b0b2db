/* SPDX-License-Identifier: MIT
 *
 * What is read here is the form that all programs write: a name and a dtype in ASCII without
 * escapes, the three members in any order, integers, and white space anywhere.
 */
#include "client/models/files/tensor.h"

#include "proto/base/own.h"
#include "proto/dtype.h"

#include <string.h>

/* ---- types ---- */

/* All of safetensors 0.8 (safetensors/src/tensor.rs, enum Dtype). */
static const struct {
	const char *name;
	uint8_t code, bits;
} types[] = {
	{ "BOOL", DTYPE_BOOL, 8 },
	{ "F4", DTYPE_FLOAT4_E2M1FN, 4 },
	{ "F6_E2M3", DTYPE_FLOAT6_E2M3FN, 6 },
	{ "F6_E3M2", DTYPE_FLOAT6_E3M2FN, 6 },
	{ "U8", DTYPE_UINT, 8 },
	{ "I8", DTYPE_INT, 8 },
	{ "F8_E5M2", DTYPE_FLOAT8_E5M2, 8 },
	{ "F8_E4M3", DTYPE_FLOAT8_E4M3FN, 8 },
	{ "F8_E8M0", DTYPE_FLOAT8_E8M0FNU, 8 },
	{ "F8_E4M3FNUZ", DTYPE_FLOAT8_E4M3FNUZ, 8 },
	{ "F8_E5M2FNUZ", DTYPE_FLOAT8_E5M2FNUZ, 8 },
	{ "I16", DTYPE_INT, 16 },
	{ "U16", DTYPE_UINT, 16 },
	{ "F16", DTYPE_FLOAT, 16 },
	{ "BF16", DTYPE_BFLOAT, 16 },
	{ "I32", DTYPE_INT, 32 },
	{ "U32", DTYPE_UINT, 32 },
	{ "F32", DTYPE_FLOAT, 32 },
	{ "C64", DTYPE_COMPLEX, 64 },
	{ "F64", DTYPE_FLOAT, 64 },
	{ "I64", DTYPE_INT, 64 },
	{ "U64", DTYPE_UINT, 64 },
};

static bool find_dtype(const char *name, size_t n, struct gpushm_dtype *ret)
{
	for (size_t i = 0; i < array_size(types); i++)
		if (strncmp(types[i].name, name, n) == 0 && types[i].name[n] == '\0') {
			*ret = (struct gpushm_dtype){ types[i].code, types[i].bits, 1, 0 };
			return true;
		}
	return false;
}

int tensor_dtype_parse(const char *name, struct gpushm_dtype *ret)
{
	return find_dtype(name, strlen(name), ret) ? 0 : -EINVAL;
}

int tensor_dtype_name(struct gpushm_dtype t, const char **ret_name)
{
	for (size_t i = 0; i < array_size(types); i++)
		if (types[i].code == t.code && types[i].bits == t.bits && t.lanes == 1) {
			*ret_name = types[i].name;
			return 0;
		}
	return -EINVAL;
}

/* ---- a description ---- */

/* Of ASCII, without escapes. */
static bool scan_string(struct json_scan *s, const char **ret, size_t *ret_n)
{
	if (!json_scan_char(s, '"'))
		return false;
	*ret = s->at;
	while (s->at < s->end && *s->at >= ' ' && *s->at < 0x7f && *s->at != '"' && *s->at != '\\')
		s->at++;
	*ret_n = (size_t)(s->at - *ret);
	return s->at < s->end && *s->at++ == '"';
}

/* An integer that can't overflow, without a sign and without zeros before it. What follows it is
 * the caller's. */
static bool scan_number(struct json_scan *s, int64_t *ret)
{
	const char *begin;

	json_scan_spaces(s);
	begin = s->at;
	for (*ret = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9' && s->at - begin < 18;)
		*ret = *ret * 10 + (*s->at++ - '0');
	return s->at > begin && (*begin != '0' || s->at == begin + 1);
}

static bool scan_numbers(struct json_scan *s, size_t max, int64_t *ret, uint32_t *ret_n)
{
	*ret_n = 0;
	if (!json_scan_char(s, '['))
		return false;
	if (json_scan_char(s, ']'))
		return true;
	do {
		if (*ret_n == max || !scan_number(s, &ret[(*ret_n)++]))
			return false;
	} while (json_scan_char(s, ','));
	return json_scan_char(s, ']');
}

static bool scan_offsets(struct json_scan *s, struct tensor *t)
{
	int64_t offsets[2];
	uint32_t n;

	if (!scan_numbers(s, 2, offsets, &n) || n != 2 || offsets[1] < offsets[0])
		return false;
	t->begin = (uint64_t)offsets[0];
	t->end = (uint64_t)offsets[1];
	return true;
}

static bool is(const char *word, const char *text, size_t n)
{
	return strlen(word) == n && memcmp(word, text, n) == 0;
}

/* A member of the tensor; *seen has a bit for each that it had. */
static bool scan_member(struct json_scan *s, struct tensor *t, int64_t *dims, unsigned *seen)
{
	const char *key, *dtype;
	size_t n, n_dtype;
	unsigned bit;
	bool ok;

	if (!scan_string(s, &key, &n) || !json_scan_char(s, ':'))
		return false;
	if (is("dtype", key, n)) {
		bit = 1;
		ok = scan_string(s, &dtype, &n_dtype) && find_dtype(dtype, n_dtype, &t->dtype);
	} else if (is("shape", key, n)) {
		bit = 2;
		ok = scan_numbers(s, GPUSHM_MAX_NDIM, dims, &t->ndim);
	} else {
		bit = 4;
		ok = is("data_offsets", key, n) && scan_offsets(s, t);
	}
	ok &= !(*seen & bit);
	*seen |= bit;
	return ok;
}

bool tensor_scan(struct json_scan *s, struct tensor *t, int64_t *dims, const char **ret_name,
		 size_t *ret_n)
{
	unsigned seen = 0;

	if (!scan_string(s, ret_name, ret_n) || !json_scan_char(s, ':') || !json_scan_char(s, '{'))
		return false;
	for (int i = 0; i < 3; i++)
		if ((i > 0 && !json_scan_char(s, ',')) || !scan_member(s, t, dims, &seen))
			return false;
	return json_scan_char(s, '}');
}
