/* SPDX-License-Identifier: MIT
 *
 * The names and sizes of the types of elements. One table has every scalar type; vectors add lanes
 * to one of them, and a record has only a size. Nothing here reads an element: for gpushm a type is
 * a label and a size.
 *
 * Names are those of NumPy and ml_dtypes. Typestrs are NumPy's array interface, version 3.
 */
#include "proto/dtype.h"

#include "proto/base/number.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>

#define LANES_MAX 16u

static const struct scalar {
	const char *name;
	const char *typestr; /* NULL: NumPy has none */
	uint8_t code;
	uint8_t bits;
} scalars[] = {
	{ "bool", "|b1", DTYPE_BOOL, 8 },
	{ "int2", NULL, DTYPE_INT, 2 },
	{ "int4", NULL, DTYPE_INT, 4 },
	{ "int8", "|i1", DTYPE_INT, 8 },
	{ "int16", "<i2", DTYPE_INT, 16 },
	{ "int32", "<i4", DTYPE_INT, 32 },
	{ "int64", "<i8", DTYPE_INT, 64 },
	{ "uint2", NULL, DTYPE_UINT, 2 },
	{ "uint4", NULL, DTYPE_UINT, 4 },
	{ "uint8", "|u1", DTYPE_UINT, 8 },
	{ "uint16", "<u2", DTYPE_UINT, 16 },
	{ "uint32", "<u4", DTYPE_UINT, 32 },
	{ "uint64", "<u8", DTYPE_UINT, 64 },
	{ "float16", "<f2", DTYPE_FLOAT, 16 },
	{ "float32", "<f4", DTYPE_FLOAT, 32 },
	{ "float64", "<f8", DTYPE_FLOAT, 64 },
	{ "complex32", NULL, DTYPE_COMPLEX, 32 },
	{ "complex64", "<c8", DTYPE_COMPLEX, 64 },
	{ "complex128", "<c16", DTYPE_COMPLEX, 128 },
	/* As PyTorch and ml_dtypes export it (torch/_tensor.py, _dtype_to_typestr). */
	{ "bfloat16", "<V2", DTYPE_BFLOAT, 16 },
	{ "float8_e3m4", NULL, DTYPE_FLOAT8_E3M4, 8 },
	{ "float8_e4m3", NULL, DTYPE_FLOAT8_E4M3, 8 },
	{ "float8_e4m3b11fnuz", NULL, DTYPE_FLOAT8_E4M3B11FNUZ, 8 },
	{ "float8_e4m3fn", NULL, DTYPE_FLOAT8_E4M3FN, 8 },
	{ "float8_e4m3fnuz", NULL, DTYPE_FLOAT8_E4M3FNUZ, 8 },
	{ "float8_e5m2", NULL, DTYPE_FLOAT8_E5M2, 8 },
	{ "float8_e5m2fnuz", NULL, DTYPE_FLOAT8_E5M2FNUZ, 8 },
	{ "float8_e8m0fnu", NULL, DTYPE_FLOAT8_E8M0FNU, 8 },
	{ "float6_e2m3fn", NULL, DTYPE_FLOAT6_E2M3FN, 6 },
	{ "float6_e3m2fn", NULL, DTYPE_FLOAT6_E3M2FN, 6 },
	{ "float4_e2m1fn", NULL, DTYPE_FLOAT4_E2M1FN, 4 },
};

/* NULL for a record and for an unknown type. */
static const struct scalar *scalar_find(struct dtype t)
{
	for (size_t i = 0; i < array_size(scalars); i++)
		if (scalars[i].code == t.code && scalars[i].bits == t.bits)
			return &scalars[i];
	return NULL;
}

bool dtype_valid(struct dtype t)
{
	if (t.code == DTYPE_RECORD)
		return t.bits == 0 && t.lanes == 1 && t.itemsize > 0;
	return t.itemsize == 0 && t.lanes >= 1 && t.lanes <= LANES_MAX && scalar_find(t);
}

uint64_t dtype_bits(struct dtype t)
{
	return t.code == DTYPE_RECORD ? (uint64_t)t.itemsize * 8 : (uint64_t)t.bits * t.lanes;
}

bool dtype_packed(struct dtype t)
{
	return dtype_bits(t) % 8 != 0;
}

uint32_t dtype_align(struct dtype t)
{
	uint32_t bits = t.code == DTYPE_COMPLEX ? t.bits / 2 : t.bits;

	return t.code == DTYPE_RECORD || bits < 8 ? 1 : bits / 8;
}

void dtype_format(struct dtype t, char *buf, size_t size)
{
	const struct scalar *s = scalar_find(t);

	if (!dtype_valid(t))
		snprintf(buf, size, "code %u of %u bits and %u lanes", t.code, t.bits, t.lanes);
	else if (t.code == DTYPE_RECORD)
		snprintf(buf, size, "record%u", t.itemsize);
	else if (t.lanes == 1)
		snprintf(buf, size, "%s", s->name);
	else
		snprintf(buf, size, "%sx%u", s->name, t.lanes);
}

/* Reads a decimal number from 1 to max that fills the text, without leading zeros. */
static int number_parse(const char *text, uint32_t max, uint32_t *ret)
{
	uint64_t n;

	if (text[0] == '0' || !number_read(text, max, &n))
		return -EINVAL;
	*ret = n;
	return 0;
}

int dtype_parse(const char *name, struct dtype *ret)
{
	uint32_t n = 1;

	if (strncmp(name, "record", 6) == 0) {
		if (number_parse(name + 6, UINT32_MAX, &n) < 0)
			return -EINVAL;
		*ret = (struct dtype){ .code = DTYPE_RECORD, .lanes = 1, .itemsize = n };
		return 0;
	}
	for (size_t i = 0; i < array_size(scalars); i++) {
		const struct scalar *s = &scalars[i];
		size_t len = strlen(s->name);

		if (strncmp(name, s->name, len) != 0 || (name[len] != '\0' && name[len] != 'x'))
			continue;
		if (name[len] == 'x' && (number_parse(name + len + 1, LANES_MAX, &n) < 0 || n == 1))
			return -EINVAL;
		*ret = (struct dtype){ .code = s->code, .bits = s->bits, .lanes = n };
		return 0;
	}
	return -EINVAL;
}

int dtype_to_typestr(struct dtype t, char *buf, size_t size)
{
	const struct scalar *s = scalar_find(t);

	if (t.code == DTYPE_RECORD)
		snprintf(buf, size, "|V%u", t.itemsize);
	else if (s && s->typestr && t.lanes == 1)
		snprintf(buf, size, "%s", s->typestr);
	else
		return -ENOTSUP;
	return 0;
}

int dtype_from_typestr(const char *typestr, struct dtype *ret)
{
	uint32_t n;

	if (typestr[0] == '\0' || !strchr("<>|=", typestr[0]) || typestr[1] == '\0')
		return -EINVAL;
	if (typestr[0] == '>' || strchr("SaUOMmt", typestr[1]))
		return -ENOTSUP;
	if (!strchr("biufcV", typestr[1]) || number_parse(typestr + 2, UINT32_MAX, &n) < 0)
		return -EINVAL;

	/* The byte order matters only for bfloat16: "|V2" is a record of two bytes. */
	for (size_t i = 0; i < array_size(scalars); i++) {
		const struct scalar *s = &scalars[i];

		if (!s->typestr || strcmp(s->typestr + 1, typestr + 1) != 0 ||
		    (typestr[1] == 'V' && typestr[0] != '<'))
			continue;
		*ret = (struct dtype){ .code = s->code, .bits = s->bits, .lanes = 1 };
		return 0;
	}
	if (typestr[1] != 'V')
		return -ENOTSUP;
	*ret = (struct dtype){ .code = DTYPE_RECORD, .lanes = 1, .itemsize = n };
	return 0;
}
