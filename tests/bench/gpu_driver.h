/* SPDX-License-Identifier: MIT
 *
 * The floor's table of driver calls.
 */
#ifndef GPUSHM_TESTS_BENCH_GPU_DRIVER_H
#define GPUSHM_TESTS_BENCH_GPU_DRIVER_H

#include <cuda.h>

struct gpu_driver {
	CUresult (*init)(unsigned flags);
	CUresult (*device_get_name)(char *name, int len, CUdevice dev);
	CUresult (*primary_ctx_retain)(CUcontext *ctx, CUdevice dev);
	CUresult (*primary_ctx_release)(CUdevice dev);
	CUresult (*ctx_set_current)(CUcontext ctx);
	CUresult (*ctx_synchronize)(void);
	CUresult (*mem_create)(CUmemGenericAllocationHandle *handle, size_t size,
			       const CUmemAllocationProp *prop, unsigned long long flags);
	CUresult (*mem_export)(void *fd, CUmemGenericAllocationHandle handle,
			       CUmemAllocationHandleType type, unsigned long long flags);
	CUresult (*mem_import)(CUmemGenericAllocationHandle *handle, void *fd,
			       CUmemAllocationHandleType type);
	CUresult (*mem_release)(CUmemGenericAllocationHandle handle);
	CUresult (*mem_address_reserve)(CUdeviceptr *ptr, size_t size, size_t alignment,
					CUdeviceptr addr, unsigned long long flags);
	CUresult (*mem_address_free)(CUdeviceptr ptr, size_t size);
	CUresult (*mem_map)(CUdeviceptr ptr, size_t size, size_t offset,
			    CUmemGenericAllocationHandle handle, unsigned long long flags);
	CUresult (*mem_unmap)(CUdeviceptr ptr, size_t size);
	CUresult (*mem_set_access)(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				   size_t count);
	CUresult (*mempool_create)(CUmemoryPool *pool, const CUmemPoolProps *props);
	CUresult (*mempool_set_attribute)(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
	CUresult (*mempool_export)(void *fd, CUmemoryPool pool, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_import)(CUmemoryPool *pool, void *fd, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_export_pointer)(CUmemPoolPtrExportData *data, CUdeviceptr ptr);
	CUresult (*mempool_import_pointer)(CUdeviceptr *ptr, CUmemoryPool pool,
					   CUmemPoolPtrExportData *data);
	CUresult (*mempool_alloc_async)(CUdeviceptr *ptr, size_t size, CUmemoryPool pool,
					CUstream stream);
	CUresult (*mem_free_async)(CUdeviceptr ptr, CUstream stream);
	CUresult (*stream_synchronize)(CUstream stream);
	CUresult (*mem_alloc)(CUdeviceptr *ptr, size_t size);
	CUresult (*mem_free)(CUdeviceptr ptr);
};

extern struct gpu_driver gpu;
extern void *gpu_library; /* for what the stand-in has not: dlsym() */

/* Ends the process where a call failed. */
#define GPU_MUST(call) gpu_must(#call, call)
void gpu_must(const char *call, CUresult result);

#endif
