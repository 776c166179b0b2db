/* SPDX-License-Identifier: MIT
 *
 * Any bytes as the start of a .npy file. What the parser accepts is consistent, and is the same
 * array when we write it and read it again.
 */
#include "client/ctl/npy.h"
#include "proto/base/own.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check_parsed(const struct npy *npy)
{
	uint64_t bytes = dtype_bits(npy->dtype) / 8;

	assert(dtype_valid(npy->dtype) && !dtype_packed(npy->dtype));
	assert(strlen(npy->descr) <= DESCR_MAX && npy->ndim <= DIMENSIONS_MAX);
	for (uint32_t i = 0; i < npy->ndim; i++) {
		assert(npy->shape[i] >= 0);
		assert(!__builtin_mul_overflow(bytes, (uint64_t)npy->shape[i], &bytes));
	}
	assert(bytes == npy->bytes && bytes <= INT64_MAX);
}

static void check_again(const struct npy *npy)
{
	_cleanup_(free_ptr) char *header = NULL;
	struct npy_error err;
	struct npy again;
	size_t len;

	assert(npy_format(npy, &header, &len) == 0);
	assert(npy_parse(header, len, &again, &err) == 0);
	check_parsed(&again);
	assert(!memcmp(&again.dtype, &npy->dtype, sizeof(again.dtype)));
	assert(!strcmp(again.descr, npy->descr) && again.fortran == npy->fortran);
	assert(again.ndim == npy->ndim && again.bytes == npy->bytes);
	assert(!memcmp(again.shape, npy->shape, npy->ndim * sizeof(npy->shape[0])));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	_cleanup_(free_ptr) unsigned char *header = NULL;
	struct npy_error err;
	struct npy npy;
	size_t len;

	if (size < NPY_PRELUDE || npy_header_size(data, &len, &err) < 0 || size < len)
		return 0;
	/* A copy of its exact size, so that ASan finds a read past its end. */
	header = malloc(len);
	assert(header);
	memcpy(header, data, len);
	if (npy_parse(header, len, &npy, &err) < 0)
		return 0;
	check_parsed(&npy);
	check_again(&npy);
	return 0;
}
