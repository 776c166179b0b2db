/* SPDX-License-Identifier: MIT
 *
 * The driver calls of the daemon, found at run time in libcuda.so.1, so that the daemon also runs
 * without a driver. One table, loaded once; no other file of the daemon names a symbol.
 */
#pragma once

#include "daemon/config/pool_config.h"
#include "proto/base/clock.h"
#include "proto/base/libcuda.h"
#include "proto/code.h"

#include <cuda.h>
#include <stdbool.h>

/* member, symbol. A symbol has the version that cuda.h's macros add to the plain name. */
#define CUDA_CALLS(X)                                                    \
	X(init, cuInit)                                                  \
	X(get_error_name, cuGetErrorName)                                \
	X(device_get_count, cuDeviceGetCount)                            \
	X(device_get, cuDeviceGet)                                       \
	X(device_get_name, cuDeviceGetName)                              \
	X(device_get_uuid, cuDeviceGetUuid_v2)                           \
	X(device_get_pci_bus_id, cuDeviceGetPCIBusId)                    \
	X(device_total_mem, cuDeviceTotalMem_v2)                         \
	X(device_get_attribute, cuDeviceGetAttribute)                    \
	X(primary_ctx_retain, cuDevicePrimaryCtxRetain)                  \
	X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2)             \
	X(ctx_set_current, cuCtxSetCurrent)                              \
	X(mem_get_allocation_granularity, cuMemGetAllocationGranularity) \
	X(mem_create, cuMemCreate)                                       \
	X(mem_release, cuMemRelease)                                     \
	X(mem_import, cuMemImportFromShareableHandle)                    \
	X(mem_export, cuMemExportToShareableHandle)                      \
	X(mempool_create, cuMemPoolCreate)                               \
	X(mempool_destroy, cuMemPoolDestroy)                             \
	X(mempool_set_attribute, cuMemPoolSetAttribute)                  \
	X(mempool_export, cuMemPoolExportToShareableHandle)              \
	X(mempool_import, cuMemPoolImportFromShareableHandle)            \
	X(mempool_export_pointer, cuMemPoolExportPointer)                \
	X(mempool_alloc_async, cuMemAllocFromPoolAsync)                  \
	X(mem_free_async, cuMemFreeAsync)                                \
	X(memset_d8_async, cuMemsetD8Async)                              \
	X(stream_create, cuStreamCreate)                                 \
	X(stream_destroy, cuStreamDestroy_v2)                            \
	X(stream_synchronize, cuStreamSynchronize)

struct cuda {
	CUDA_CALLS(LIBCUDA_MEMBER)
};

/* The table, loaded on the first call (thread-safe). NULL, and `why` says so: there is no
 * libcuda.so.1, or the driver is too old and lacks a symbol. */
const struct cuda *cuda_load(char *why, size_t size);

/* cuda_call(cuda, mem_create, &handle, bytes, &prop, 0): calls the function and counts the call. */
#define CUDA_INDEX(member, symbol) CUDA_##member,
enum cuda_index { CUDA_CALLS(CUDA_INDEX) CUDA_COUNT };
void cuda_count(enum cuda_index call, CUresult result, uint64_t ns);
#define cuda_call(cuda, member, ...)                                               \
	({                                                                         \
		uint64_t since_ = clock_monotonic_ns();                            \
		CUresult result_ = (cuda)->member(__VA_ARGS__);                    \
		cuda_count(CUDA_##member, result_, clock_monotonic_ns() - since_); \
		result_;                                                           \
	})

/* 0 for CUDA_SUCCESS. Else writes "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY" to *f, with
 * CODE_POOL_FULL for out of memory, CODE_POOL_FAILED if the device is lost, or CODE_DRIVER; and
 * returns -errno. */
int cuda_try(struct fault *f, const char *call, CUresult result);

/* Whether the result of an import may mean that the handle's memory is gone; other results say
 * nothing about the handle. */
bool cuda_refuses_handle(CUresult result);

/* For an import that shows whether FACT_kept of proto/facts.h holds. If the handle is refused, *f
 * names the fact, with CODE_DRIVER; else as cuda_try(). */
int cuda_try_kept(struct fault *f, enum pool_kind kind, const char *call, CUresult result);

/* For a call that cleans up, after a failed one or at the end: logs its failure. */
void cuda_undone(const char *call, CUresult result);
