/* SPDX-License-Identifier: MIT
 *
 * The few driver calls that GPU tests make for themselves, found at run time like the product's
 * own.
 */
#ifndef GPUSHM_TESTS_GPU_DRIVER_H
#define GPUSHM_TESTS_GPU_DRIVER_H

#include <cuda.h>
#include <stdbool.h>

struct driver {
	CUresult (*init)(unsigned int flags);
	CUresult (*device_get_count)(int *count);
	CUresult (*primary_ctx_retain)(CUcontext *ctx, CUdevice dev);
	CUresult (*primary_ctx_release)(CUdevice dev);
	CUresult (*ctx_set_current)(CUcontext ctx);
	CUresult (*ctx_synchronize)(void);
	CUresult (*mem_get_info)(size_t *free, size_t *total);
	CUresult (*memset_d8)(CUdeviceptr ptr, unsigned char value, size_t n);
	CUresult (*memset_d32)(CUdeviceptr ptr, unsigned int value, size_t n);
	CUresult (*memcpy_dtoh)(void *dst, CUdeviceptr src, size_t n);
	CUresult (*memcpy_htod)(CUdeviceptr dst, const void *src, size_t n);
	CUresult (*mem_host_register)(void *ptr, size_t n, unsigned int flags);
	CUresult (*mem_host_unregister)(void *ptr);
	CUresult (*mem_import)(CUmemGenericAllocationHandle *handle, void *shareable,
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
	CUresult (*mempool_import)(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_set_access)(CUmemoryPool pool, const CUmemAccessDesc *desc,
				       size_t count);
	CUresult (*mempool_import_pointer)(CUdeviceptr *ptr, CUmemoryPool pool,
					   CUmemPoolPtrExportData *data);
	CUresult (*mempool_destroy)(CUmemoryPool pool);
	CUresult (*mem_free_async)(CUdeviceptr ptr, CUstream stream);
	CUresult (*stream_synchronize)(CUstream stream);

	/* Kernels. The fake driver has none: launch_kernel is NULL. */
	CUresult (*module_load_data)(CUmodule *module, const void *image);
	CUresult (*module_get_function)(CUfunction *function, CUmodule module, const char *name);
	CUresult (*launch_kernel)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
				  unsigned by, unsigned bz, unsigned shared, CUstream stream,
				  void **params, void **extra);
};

/* Loads libcuda.so.1, initialises it and makes device `ordinal`'s primary context current. False
 * where there is none. */
bool driver_open(struct driver *d, int ordinal);

/* Lets go of the context. */
void driver_close(const struct driver *d, int ordinal);

/* False: it is the fake one. */
bool driver_has_kernels(const struct driver *d);

/* Launches a kernel of one thread that stores `value` at `address`. */
CUresult driver_store(const struct driver *d, CUdeviceptr address, unsigned value);

/* A kernel that never ends: it stores `value` in each of n words, over and over. Loaded once, it is
 * launched without a wait. */
CUresult driver_load_scribble(const struct driver *d, CUfunction *ret);
CUresult driver_scribble(const struct driver *d, CUfunction scribble, CUdeviceptr words,
			 unsigned long long n, unsigned value);

#endif
