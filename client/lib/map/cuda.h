/* SPDX-License-Identifier: MIT
 *
 * The driver calls that a client makes, found at run time in libcuda.so.1, and what the files that
 * make them share. Nothing else in the library names a symbol of the driver.
 */
#pragma once

#include "client/lib/map/map.h"
#include "proto/base/cuda_table.h"

#include <stdbool.h>

#if CUDA_VERSION >= 13000
/* The oldest version with the stream's last nodes: CUDA 11.3. Newer headers declare the newest
 * version alone. */
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **last, size_t *n_last);
#endif

/* clang-format off */
#define CUDA_CALLS(X) \
	X(cuInit) X(cuGetErrorName) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetUuid) \
	X(cuDeviceTotalMem) X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain) \
	X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxGetState) X(cuCtxGetCurrent) \
	X(cuCtxGetDevice) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxSynchronize) \
	X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemImportFromShareableHandle) \
	X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) \
	X(cuMemPoolImportFromShareableHandle) X(cuMemPoolSetAccess) X(cuMemPoolDestroy) \
	X(cuMemPoolImportPointer) X(cuMemFreeAsync) X(cuStreamSynchronize) X(cuMemcpyAsync) \
	X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpy2DAsync) X(cuMemHostRegister) \
	X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) X(cuThreadExchangeStreamCaptureMode)

/* Those of streams alone: a driver that lacks one of them still maps buffers. */
#define CUDA_STREAM_CALLS(X) \
	X(cuDeviceGetAttribute) X(cuStreamWaitValue64) X(cuStreamWriteValue64) \
	X(cuStreamBatchMemOp) X(cuStreamGetCtx) X(cuStreamGetCaptureInfo_v2) X(cuGraphNodeGetType) \
	X(cuGraphBatchMemOpNodeGetParams) X(cuGraphExecBatchMemOpNodeSetParams)

/* NULL with drivers before CUDA 12.0. */
#define CUDA_NEWER_CALLS(X) X(cuStreamGetId)
/* clang-format on */

struct cuda {
	CUDA_CALLS(CUDA_MEMBER)
	CUDA_STREAM_CALLS(CUDA_MEMBER)
	CUDA_NEWER_CALLS(CUDA_MEMBER)
};

/* The table; of use once cuda_start() has succeeded in this process. */
extern struct cuda cuda;

/* Loads and starts the driver (cuInit: 0.2 s) on the first call. 0, or -ENODEV with gpushm_error()
 * set: no driver, too old a one, no GPU, or one that was started before fork(). */
int cuda_start(void);

/* Whether cuda_start() has succeeded in this process. */
bool cuda_is_started(void);

/* How many GPUs this process can see. After cuda_start(). */
int cuda_devices(void);

/* 0, or -ENOTSUP with gpushm_error() set: the driver lacks a call of streams. After cuda_start().
 */
int cuda_check_streams(void);

/* 0 for CUDA_SUCCESS. Else sets gpushm_error() to "cuMemMap: CUDA_ERROR_..." and returns -ENOMEM,
 * -ENODEV or -EIO. */
int cuda_check(const char *call, CUresult result);

/* cuda_try(cuMemMap, ptr, bytes, 0, handle, 0): calls it, and checks the result. */
#define cuda_try(call, ...) cuda_check(#call, cuda.call(__VA_ARGS__))

/* ---- context.c: devices by UUID and ordinal, and a thread's context; after cuda_start() ---- */

/* The device of a pool, and the one that the request asks to map for, which must have peer access
 * to it. 0, or -ENODEV, -EIO with gpushm_error() set. */
int context_find_devices(const struct map_request *r, int *ret_owner, int *ret_device);

/* Pins the process's memory for all GPUs, also while a stream captures a graph; size 0: unpins it.
 * flags: of cuMemHostRegister(). ret_address: for GPUs; NULL: they don't use it. device: whose
 * context the call is made in. 0, or -errno with gpushm_error() set. */
int context_pin(int device, void *memory, size_t size, unsigned int flags, uint64_t *ret_address);

/* The ordinal of the calling thread's context; 0 where it has none. */
int context_current_device(void);

/* ---- window.c ---- */

/* A range of addresses that maps one allocation of the driver's, imported from its fd: what vmm and
 * pinned memory share. After cuda_start(). All return 0, or -errno with gpushm_error() set. */

static inline CUmemAccessDesc window_access(CUmemLocationType where, int id, bool write)
{
	return (CUmemAccessDesc){ .location = { .type = where, .id = id },
				  .flags = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						 : CU_MEM_ACCESS_FLAGS_PROT_READ };
}

/* Imports the fd, which stays the caller's, and maps all its bytes with that access: at *ptr, or,
 * if that is 0, at addresses that it reserves and writes there. An error leaves all as it was.
 * Needs no context. */
int window_open(int fd, size_t bytes, const CUmemAccessDesc *access, size_t n_access,
		CUdeviceptr *ptr);

/* map_kind::unmap for both kinds: for both map.device_ptr is the window. */
int window_unmap(struct map_private *p, bool keep);
/* Gives GPUs (bit n: GPU n) that access to it. */
int window_give(const struct map_private *p, uint64_t devices, bool write);
int window_share(struct map_private *p, int device);
