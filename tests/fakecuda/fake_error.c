/* SPDX-License-Identifier: MIT
 *
 * The names of results. Neither call takes the lock, counts or can be made to fail: they are what
 * reports the failures of all others.
 */
#include "tests/fakecuda/fake_call.h"

#include "proto/base/own.h"

#define ERROR(name)         \
	{                   \
		name, #name \
	}

static const struct {
	CUresult result;
	const char *name;
} errors[] = {
	ERROR(CUDA_SUCCESS),
	ERROR(CUDA_ERROR_INVALID_VALUE),
	ERROR(CUDA_ERROR_OUT_OF_MEMORY),
	ERROR(CUDA_ERROR_NOT_INITIALIZED),
	ERROR(CUDA_ERROR_DEINITIALIZED),
	ERROR(CUDA_ERROR_STUB_LIBRARY),
	ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE),
	ERROR(CUDA_ERROR_NO_DEVICE),
	ERROR(CUDA_ERROR_INVALID_DEVICE),
	ERROR(CUDA_ERROR_INVALID_CONTEXT),
	ERROR(CUDA_ERROR_MAP_FAILED),
	ERROR(CUDA_ERROR_UNMAP_FAILED),
	ERROR(CUDA_ERROR_ALREADY_MAPPED),
	ERROR(CUDA_ERROR_NOT_MAPPED),
	ERROR(CUDA_ERROR_ECC_UNCORRECTABLE),
	ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
	ERROR(CUDA_ERROR_OPERATING_SYSTEM),
	ERROR(CUDA_ERROR_INVALID_HANDLE),
	ERROR(CUDA_ERROR_ILLEGAL_STATE),
	ERROR(CUDA_ERROR_NOT_FOUND),
	ERROR(CUDA_ERROR_NOT_READY),
	ERROR(CUDA_ERROR_ILLEGAL_ADDRESS),
	ERROR(CUDA_ERROR_LAUNCH_FAILED),
	ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED),
	ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
	ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
	ERROR(CUDA_ERROR_NOT_PERMITTED),
	ERROR(CUDA_ERROR_NOT_SUPPORTED),
	ERROR(CUDA_ERROR_SYSTEM_NOT_READY),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
	ERROR(CUDA_ERROR_UNKNOWN),
};

const char *error_name(CUresult result)
{
	for (size_t i = 0; i < array_size(errors); i++)
		if (errors[i].result == result)
			return errors[i].name;
	return NULL;
}

static CUresult error_tell(CUresult error, const char **str)
{
	if (!str)
		return CUDA_ERROR_INVALID_VALUE;
	*str = error_name(error);
	return *str ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **str)
{
	return error_tell(error, str);
}

CUresult cuGetErrorString(CUresult error, const char **str)
{
	return error_tell(error, str);
}
