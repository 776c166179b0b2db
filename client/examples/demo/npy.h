/* SPDX-License-Identifier: MIT
 *
 * A .npy file in memory: version 1.0, C order, at most four dimensions. Enough for tests/data;
 * gpushmctl put reads all that NumPy writes.
 */
#ifndef GPUSHM_EXAMPLES_DEMO_NPY_H
#define GPUSHM_EXAMPLES_DEMO_NPY_H

#include <gpushm.h>

#define NPY_NDIM_MAX 4

struct npy {
	struct gpushm_dtype dtype;
	int ndim;
	int64_t shape[NPY_NDIM_MAX];
	void *data; /* owned */
	size_t bytes;
};

/* 0; -errno of the file; -EINVAL where it is no such file. */
int npy_read(const char *path, struct npy *ret);
void npy_clear(struct npy *n);

#endif
