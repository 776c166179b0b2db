/* SPDX-License-Identifier: MIT
 *
 * The public functions on types of elements. What a type is, and what it is called, is decided in
 * proto/dtype.c; this room checks what a caller hands in and words the errors. It holds nothing.
 */
#include "client/base/dtype.h"

#include "client/base/error.h"

#include <errno.h>

int gpushm_dtype_parse(const char *name, struct gpushm_dtype *ret)
{
	struct dtype t;

	if (!name)
		return error_set(EINVAL, "a dtype needs a name");
	if (dtype_parse(name, &t) < 0 && dtype_from_typestr(name, &t) < 0)
		return error_set(EINVAL,
				 "dtype \"%s\" is not known: a name like float32, bfloat16, "
				 "float8_e4m3fn, record40, or a NumPy typestr like \"<f4\"",
				 name);
	*ret = dtype_to_public(t);
	return 0;
}

static int check(struct gpushm_dtype t)
{
	if (!dtype_valid(dtype_from_public(t)))
		return error_set(EINVAL, "no dtype has code %u, %u bits, %u lanes and itemsize %u",
				 t.code, t.bits, t.lanes, t.itemsize);
	return 0;
}

int gpushm_dtype_format(struct gpushm_dtype t, char *buf, size_t size)
{
	int r = check(t);

	if (r < 0)
		return r;
	if (!buf || size == 0)
		return error_set(EINVAL, "a dtype's name needs a buffer of 32 bytes");
	dtype_format(dtype_from_public(t), buf, size);
	return 0;
}

int gpushm_dtype_typestr(struct gpushm_dtype t, char *buf, size_t size)
{
	char name[32];
	int r = check(t);

	if (r < 0)
		return r;
	if (!buf || size < 16)
		return error_set(EINVAL, "a typestr needs a buffer of 16 bytes");
	r = dtype_to_typestr(dtype_from_public(t), buf, size);
	if (r < 0) {
		dtype_format(dtype_from_public(t), name, sizeof(name));
		return error_set(-r, "NumPy has no typestr for %s", name);
	}
	return 0;
}

uint64_t gpushm_dtype_bits(struct gpushm_dtype t)
{
	return check(t) < 0 ? 0 : dtype_bits(dtype_from_public(t));
}
