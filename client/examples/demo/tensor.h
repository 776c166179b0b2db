/* SPDX-License-Identifier: MIT
 *
 * An array of a .npy file in this process's own memory, in C order.
 */
#ifndef GPUSHM_EXAMPLES_DEMO_TENSOR_H
#define GPUSHM_EXAMPLES_DEMO_TENSOR_H

#include <gpushm.h>

#define TENSOR_NDIM_MAX 4

struct tensor {
	struct gpushm_dtype dtype;
	int ndim;
	int64_t shape[TENSOR_NDIM_MAX];
	void *data; /* owned */
	size_t bytes;
};

/* 0, or -errno with the reason on stderr. */
int tensor_read(const char *path, struct tensor *ret);
void tensor_clear(struct tensor *t);

#endif
