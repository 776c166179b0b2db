/* SPDX-License-Identifier: MIT
 *
 * NumPy's file format .npy, versions 1.0, 2.0 and 3.0 (numpy/lib/format.py, "NEP 1"): a magic
 * string, a version, a length, and the text of a Python dict with descr, fortran_order and shape.
 * The data follow the header.
 */
#pragma once

#include "client/gpushm_array.h"
#include "proto/dtype.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPY_PRELUDE 12u	      /* bytes that npy_header_size() looks at */
#define NPY_HEADER_MAX 65536u /* bytes before the data; NumPy itself warns above 10,000 */

struct npy {
	struct dtype dtype;
	char descr[DESCR_MAX + 1]; /* of a record: the Python literal that makes its dtype; or "" */
	bool fortran;
	uint32_t ndim;
	int64_t shape[DIMENSIONS_MAX];
	uint64_t bytes; /* of the data */
	size_t room;	/* npy_format(): the header has at least so many bytes */
};

/* The dtype as the library has it. */
static inline struct gpushm_dtype npy_dtype(const struct npy *n)
{
	return (struct gpushm_dtype){ n->dtype.code, n->dtype.bits, n->dtype.lanes,
				      n->dtype.itemsize };
}

static inline void npy_set_dtype(struct npy *n, struct gpushm_dtype t)
{
	n->dtype = (struct dtype){ t.code, t.bits, t.lanes, t.itemsize };
}

struct npy_error {
	char text[192];
};

/* The length of the header (all bytes before the data), from the file's first NPY_PRELUDE bytes.
 * 0; -EINVAL (not a .npy file), -ENOTSUP (its version), -EFBIG (above NPY_HEADER_MAX). */
int npy_header_size(const void *prelude, size_t *ret, struct npy_error *err);

/* Reads a header of exactly len bytes. 0; -EINVAL (malformed), -ENOTSUP (Python objects, big-endian
 * data, more than 32 dimensions), -EOVERFLOW (the size of the data does not fit). */
int npy_parse(const void *header, size_t len, struct npy *ret, struct npy_error *err);

/* Reads the header from a file, which is then at its data. 0 or -errno, with the reason in err. */
int npy_read(int fd, struct npy *ret, struct npy_error *err);

/* The header for an array, malloc'd, from dtype, descr, fortran, ndim, shape and room. 0; -ENOTSUP
 * if NumPy has no such dtype (float6, float4, vectors); -EOVERFLOW; -ENOMEM. A float8 is written as
 * "|V1", a bfloat16 as "<V2", as ml_dtypes does. */
int npy_format(const struct npy *npy, char **ret, size_t *ret_len);
