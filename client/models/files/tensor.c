/* SPDX-License-Identifier: MIT */
#include "client/models/files/tensor.h"

#include "proto/base/own.h"
#include "proto/dtype.h"

#include <string.h>

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

int tensor_dtype_parse(const char *name, struct gpushm_dtype *ret)
{
	for (size_t i = 0; i < array_size(types); i++)
		if (strcmp(types[i].name, name) == 0) {
			*ret = (struct gpushm_dtype){ types[i].code, types[i].bits, 1, 0 };
			return 0;
		}
	return -EINVAL;
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
