/* SPDX-License-Identifier: MIT
 *
 * The driver calls that the daemon may make, found at run time in libcuda.so.1: a machine without
 * a driver runs all the same. One table, loaded once; nothing else in the daemon names a symbol.
 */
#ifndef GPUSHM_DAEMON_POOL_CUDA_H
#define GPUSHM_DAEMON_POOL_CUDA_H

#include "proto/fault.h"

#include <cuda.h>
#include <stdbool.h>

struct cuda {
	CUresult (*init)(unsigned int flags);
	CUresult (*get_error_name)(CUresult error, const char **str);
	CUresult (*driver_get_version)(int *version);
	CUresult (*device_get_count)(int *count);
	CUresult (*device_get)(CUdevice *device, int ordinal);
	CUresult (*device_get_name)(char *name, int len, CUdevice dev);
	CUresult (*device_get_uuid)(CUuuid *uuid, CUdevice dev);
	CUresult (*device_get_pci_bus_id)(char *id, int len, CUdevice dev);
	CUresult (*device_total_mem)(size_t *bytes, CUdevice dev);
	CUresult (*device_get_attribute)(int *value, CUdevice_attribute attribute, CUdevice dev);
	CUresult (*primary_ctx_retain)(CUcontext *ctx, CUdevice dev);
	CUresult (*primary_ctx_release)(CUdevice dev);
	CUresult (*ctx_set_current)(CUcontext ctx);
	CUresult (*mem_get_info)(size_t *free, size_t *total);
	CUresult (*mem_get_allocation_granularity)(size_t *granularity,
						   const CUmemAllocationProp *prop,
						   CUmemAllocationGranularity_flags option);
	CUresult (*mem_create)(CUmemGenericAllocationHandle *handle, size_t size,
			       const CUmemAllocationProp *prop, unsigned long long flags);
	CUresult (*mem_release)(CUmemGenericAllocationHandle handle);
	CUresult (*mem_import)(CUmemGenericAllocationHandle *handle, void *shareable,
			       CUmemAllocationHandleType type);
	CUresult (*mem_export)(void *shareable, CUmemGenericAllocationHandle handle,
			       CUmemAllocationHandleType type, unsigned long long flags);
	CUresult (*mempool_create)(CUmemoryPool *pool, const CUmemPoolProps *props);
	CUresult (*mempool_destroy)(CUmemoryPool pool);
	CUresult (*mempool_trim)(CUmemoryPool pool, size_t min_bytes);
	CUresult (*mempool_set_attribute)(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
	CUresult (*mempool_export)(void *handle, CUmemoryPool pool, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_import)(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_export_pointer)(CUmemPoolPtrExportData *data, CUdeviceptr ptr);
	CUresult (*mempool_alloc_async)(CUdeviceptr *ptr, size_t size, CUmemoryPool pool,
					CUstream stream);
	CUresult (*mem_free_async)(CUdeviceptr ptr, CUstream stream);
	CUresult (*memset_d8_async)(CUdeviceptr ptr, unsigned char value, size_t n,
				    CUstream stream);
	CUresult (*stream_create)(CUstream *stream, unsigned int flags);
	CUresult (*stream_destroy)(CUstream stream);
	CUresult (*stream_synchronize)(CUstream stream);
};

/* The table, loaded on the first call (thread-safe), or NULL with `why` filled in: no libcuda.so.1,
 * or a symbol that an old driver lacks. */
const struct cuda *cuda_load(char *why, size_t size);

/* "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY" into *f, with CODE_POOL_FULL for out of memory,
 * CODE_POOL_FAILED where the device is lost, and CODE_DRIVER for all else. Returns -errno. */
int cuda_fault(struct fault *f, const char *call, CUresult result);

/* Whether an import that ended so may have met a handle whose memory is gone; other results say
 * nothing of the handle. */
bool cuda_refuses_handle(CUresult result);

/* For a call that cleans up, after a failed one or at the end: its own failure is logged, and
 * nothing is decided from it. */
void cuda_undone(const char *call, CUresult result);

#endif
