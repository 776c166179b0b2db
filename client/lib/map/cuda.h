/* SPDX-License-Identifier: MIT
 *
 * The driver calls that a client makes, found at run time in libcuda.so.1. Nothing else in the
 * library names a symbol of the driver.
 */
#pragma once

#include "proto/base/libcuda.h"

#include <cuda.h>
#include <stdbool.h>

/* member, symbol. A symbol has the version that cuda.h's macros add to the plain name. */
#define CUDA_CALLS(X)                                         \
	X(init, cuInit)                                       \
	X(get_error_name, cuGetErrorName)                     \
	X(device_get_count, cuDeviceGetCount)                 \
	X(device_get, cuDeviceGet)                            \
	X(device_get_uuid, cuDeviceGetUuid_v2)                \
	X(device_total_mem, cuDeviceTotalMem_v2)              \
	X(device_can_access_peer, cuDeviceCanAccessPeer)      \
	X(primary_ctx_retain, cuDevicePrimaryCtxRetain)       \
	X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2)  \
	X(primary_ctx_get_state, cuDevicePrimaryCtxGetState)  \
	X(ctx_get_current, cuCtxGetCurrent)                   \
	X(ctx_get_device, cuCtxGetDevice)                     \
	X(ctx_push_current, cuCtxPushCurrent_v2)              \
	X(ctx_pop_current, cuCtxPopCurrent_v2)                \
	X(ctx_synchronize, cuCtxSynchronize)                  \
	X(mem_address_reserve, cuMemAddressReserve)           \
	X(mem_address_free, cuMemAddressFree)                 \
	X(mem_import, cuMemImportFromShareableHandle)         \
	X(mem_release, cuMemRelease)                          \
	X(mem_map, cuMemMap)                                  \
	X(mem_unmap, cuMemUnmap)                              \
	X(mem_set_access, cuMemSetAccess)                     \
	X(mempool_import, cuMemPoolImportFromShareableHandle) \
	X(mempool_set_access, cuMemPoolSetAccess)             \
	X(mempool_destroy, cuMemPoolDestroy)                  \
	X(mempool_import_pointer, cuMemPoolImportPointer)     \
	X(mem_free_async, cuMemFreeAsync)                     \
	X(stream_synchronize, cuStreamSynchronize)            \
	X(memcpy_async, cuMemcpyAsync)                        \
	X(memcpy_htod_async, cuMemcpyHtoDAsync_v2)            \
	X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2)            \
	X(memcpy_2d_async, cuMemcpy2DAsync_v2)                \
	X(host_register, cuMemHostRegister_v2)                \
	X(host_unregister, cuMemHostUnregister)               \
	X(host_pointer, cuMemHostGetDevicePointer_v2)         \
	X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode)

struct cuda {
	CUDA_CALLS(LIBCUDA_MEMBER)
};

/* The table; of use once cuda_start() has succeeded in this process. */
extern struct cuda cuda;

/* Loads and starts the driver (cuInit: 0.2 s) on the first call. 0, or -ENODEV with gpushm_error()
 * set: no driver, too old a one, no GPU, or one that was started before fork(). */
int cuda_start(void);

/* Whether cuda_start() has succeeded in this process. */
bool cuda_is_started(void);

/* 0 for CUDA_SUCCESS. Else sets gpushm_error() to "cuMemMap: CUDA_ERROR_..." and returns -ENOMEM,
 * -ENODEV or -EIO. */
int cuda_check(const char *call, CUresult result);
