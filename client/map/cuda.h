/* SPDX-License-Identifier: MIT
 *
 * The driver calls that a client makes, found at run time in libcuda.so.1. Nothing else in the
 * library names a symbol of the driver.
 */
#ifndef GPUSHM_CLIENT_MAP_CUDA_H
#define GPUSHM_CLIENT_MAP_CUDA_H

#include <cuda.h>

struct cuda {
	CUresult (*init)(unsigned int flags);
	CUresult (*get_error_name)(CUresult error, const char **str);
	CUresult (*device_get_count)(int *count);
	CUresult (*device_get)(CUdevice *device, int ordinal);
	CUresult (*device_get_uuid)(CUuuid *uuid, CUdevice dev);
	CUresult (*device_total_mem)(size_t *bytes, CUdevice dev);
	CUresult (*device_can_access_peer)(int *can, CUdevice dev, CUdevice peer);
	CUresult (*primary_ctx_retain)(CUcontext *ctx, CUdevice dev);
	CUresult (*primary_ctx_release)(CUdevice dev);
	CUresult (*primary_ctx_get_state)(CUdevice dev, unsigned int *flags, int *active);
	CUresult (*ctx_get_current)(CUcontext *ctx);
	CUresult (*ctx_get_device)(CUdevice *dev);
	CUresult (*ctx_push_current)(CUcontext ctx);
	CUresult (*ctx_pop_current)(CUcontext *ctx);
	CUresult (*ctx_synchronize)(void);
	CUresult (*mem_address_reserve)(CUdeviceptr *ptr, size_t size, size_t alignment,
					CUdeviceptr addr, unsigned long long flags);
	CUresult (*mem_address_free)(CUdeviceptr ptr, size_t size);
	CUresult (*mem_import)(CUmemGenericAllocationHandle *handle, void *fd,
			       CUmemAllocationHandleType type);
	CUresult (*mem_release)(CUmemGenericAllocationHandle handle);
	CUresult (*mem_map)(CUdeviceptr ptr, size_t size, size_t offset,
			    CUmemGenericAllocationHandle handle, unsigned long long flags);
	CUresult (*mem_unmap)(CUdeviceptr ptr, size_t size);
	CUresult (*mem_set_access)(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				   size_t count);
	CUresult (*mempool_import)(CUmemoryPool *pool, void *fd, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_set_access)(CUmemoryPool pool, const CUmemAccessDesc *desc,
				       size_t count);
	CUresult (*mempool_destroy)(CUmemoryPool pool);
	CUresult (*mempool_import_pointer)(CUdeviceptr *ptr, CUmemoryPool pool,
					   CUmemPoolPtrExportData *data);
	CUresult (*mem_free_async)(CUdeviceptr ptr, CUstream stream);
	CUresult (*stream_synchronize)(CUstream stream);
	CUresult (*memcpy_htod_async)(CUdeviceptr to, const void *from, size_t n, CUstream stream);
	CUresult (*memcpy_dtoh_async)(void *to, CUdeviceptr from, size_t n, CUstream stream);
	CUresult (*memcpy_2d_async)(const CUDA_MEMCPY2D *copy, CUstream stream);
};

/* The table; of use once cuda_start() has succeeded in this process. */
extern struct cuda cuda;

/* Loads and starts the driver (cuInit: 0.2 s) on the first call. 0, or -ENODEV with gpushm_error()
 * set: no driver, too old a one, no GPU, or one that was started before fork(). */
int cuda_start(void);

/* 0 for CUDA_SUCCESS. Else sets gpushm_error() to "cuMemMap: CUDA_ERROR_..." and returns -ENOMEM,
 * -ENODEV or -EIO. */
int cuda_check(const char *call, CUresult result);

#endif
