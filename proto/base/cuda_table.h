/* SPDX-License-Identifier: MIT
 *
 * Tables of the driver's calls, each of which has one name: the plain one. cuda.h's macros add the
 * version to it, in its type and in its symbol alike. For a list CUDA_CALLS(X) of X(cuMemMap):
 *
 *	struct cuda { CUDA_CALLS(CUDA_MEMBER) } cuda;
 *	static const struct libcuda_symbol symbols[] = { CUDA_CALLS(CUDA_SYMBOL) };
 *	cuda.cuMemMap(...)
 */
#pragma once

#include "proto/base/libcuda.h"

#include <cuda.h>
#include <errno.h>
#include <stddef.h>

#define CUDA_MEMBER(call) __typeof__(call) *call;
#define CUDA_SYMBOL(call) CUDA_SYMBOL_OF(call)
#define CUDA_SYMBOL_OF(symbol) { #symbol, offsetof(struct cuda, symbol) },

/* ENOMEM, ENODEV or EIO. */
static inline int cuda_errno(CUresult result)
{
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return ENOMEM;
	if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_INVALID_DEVICE ||
	    result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEVICE_UNAVAILABLE)
		return ENODEV;
	return EIO;
}

/* "CUDA_ERROR_OUT_OF_MEMORY". */
static inline const char *cuda_error_name(__typeof__(cuGetErrorName) *ask, CUresult result)
{
	const char *name = NULL;

	/* The driver leaves name as it is for an error that it does not know. */
	ask(result, &name);
	return name ? name : "an error that the driver has no name for";
}
