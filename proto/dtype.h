/* SPDX-License-Identifier: MIT
 *
 * Types of elements: NumPy's, bfloat16, complex32, integers of 2 and 4 bits, the float8, float6 and
 * float4 types of DLPack 1.1, and records.
 *
 * The triple (code, bits, lanes) is DLPack's DLDataType (dmlc/dlpack, include/dlpack/dlpack.h at
 * v1.1); DTYPE_RECORD is ours. A type narrower than a byte is packed, little end first, as DLPack
 * says for arrays without kDLDataTypeSubbyteTypePadded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DTYPE_INT = 0,
	DTYPE_UINT = 1,
	DTYPE_FLOAT = 2,
	DTYPE_BFLOAT = 4,
	DTYPE_COMPLEX = 5,
	DTYPE_BOOL = 6,
	DTYPE_FLOAT8_E3M4 = 7,
	DTYPE_FLOAT8_E4M3 = 8,
	DTYPE_FLOAT8_E4M3B11FNUZ = 9,
	DTYPE_FLOAT8_E4M3FN = 10,
	DTYPE_FLOAT8_E4M3FNUZ = 11,
	DTYPE_FLOAT8_E5M2 = 12,
	DTYPE_FLOAT8_E5M2FNUZ = 13,
	DTYPE_FLOAT8_E8M0FNU = 14,
	DTYPE_FLOAT6_E2M3FN = 15,
	DTYPE_FLOAT6_E3M2FN = 16,
	DTYPE_FLOAT4_E2M1FN = 17,
	DTYPE_RECORD = 255,
};

struct dtype {
	uint8_t code;
	uint8_t bits;	   /* of one lane; 0 for a record */
	uint16_t lanes;	   /* 1 for a scalar type */
	uint32_t itemsize; /* bytes of a record; 0 for all else */
};

/* Whether code, bits, lanes and itemsize make a known type. lanes: 1 to 16. */
bool dtype_valid(struct dtype t);

/* Bits of one element, lanes included; for a record 8 * itemsize. Never 0 for a valid type. */
uint64_t dtype_bits(struct dtype t);

/* Whether elements do not start on byte boundaries; such arrays are always C-contiguous. */
bool dtype_packed(struct dtype t);

/* The alignment of an element in bytes, as in NumPy: the lane's size, for a complex type the size
 * of one component; at most 8, and 1 for records and lanes narrower than a byte. A kernel that
 * loads a complex number at once (double2, float2) needs more and must see to it. */
uint32_t dtype_align(struct dtype t);

/* "float32", "bfloat16", "float8_e4m3fn", "float32x4", "record40". Writes a NUL; cuts at size. */
void dtype_format(struct dtype t, char *buf, size_t size);

/* The inverse of dtype_format(). 0, or -EINVAL for an unknown name. */
int dtype_parse(const char *name, struct dtype *ret);

/* NumPy's array-interface typestr ("<f4", "|b1", "|V40"; bfloat16 as "<V2", as PyTorch does). 0, or
 * -ENOTSUP: NumPy has no such type. buf has at least 16 bytes. */
int dtype_to_typestr(struct dtype t, char *buf, size_t size);

/* The inverse, for little-endian and byte-sized types. 0, -EINVAL (not a typestr), -ENOTSUP (big
 * endian, strings, objects, dates). "|V8" gives a record of 8 bytes. */
int dtype_from_typestr(const char *typestr, struct dtype *ret);
