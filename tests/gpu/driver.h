/* SPDX-License-Identifier: MIT
 *
 * The driver calls that GPU tests and the bench make themselves, looked up at run time as the
 * product does.
 */
#pragma once

#include <cuda.h>
#include <stdbool.h>

struct driver {
	CUresult (*init)(unsigned int flags);
	CUresult (*device_get_count)(int *count);
	CUresult (*device_get_name)(char *name, int len, CUdevice dev);
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
	CUresult (*mem_alloc)(CUdeviceptr *ptr, size_t size);
	CUresult (*mem_free)(CUdeviceptr ptr);
	CUresult (*mem_create)(CUmemGenericAllocationHandle *handle, size_t size,
			       const CUmemAllocationProp *prop, unsigned long long flags);
	CUresult (*mem_export)(void *fd, CUmemGenericAllocationHandle handle,
			       CUmemAllocationHandleType type, unsigned long long flags);
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
	CUresult (*mempool_create)(CUmemoryPool *pool, const CUmemPoolProps *props);
	CUresult (*mempool_set_attribute)(CUmemoryPool pool, CUmemPool_attribute attr, void *value);
	CUresult (*mempool_export)(void *fd, CUmemoryPool pool, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_import)(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
				   unsigned long long flags);
	CUresult (*mempool_set_access)(CUmemoryPool pool, const CUmemAccessDesc *desc,
				       size_t count);
	CUresult (*mempool_export_pointer)(CUmemPoolPtrExportData *data, CUdeviceptr ptr);
	CUresult (*mempool_import_pointer)(CUdeviceptr *ptr, CUmemoryPool pool,
					   CUmemPoolPtrExportData *data);
	CUresult (*mempool_destroy)(CUmemoryPool pool);
	CUresult (*mempool_alloc_async)(CUdeviceptr *ptr, size_t size, CUmemoryPool pool,
					CUstream stream);
	CUresult (*mem_free_async)(CUdeviceptr ptr, CUstream stream);
	CUresult (*stream_synchronize)(CUstream stream);
	CUresult (*stream_create)(CUstream *stream, unsigned int flags);
	CUresult (*stream_destroy)(CUstream stream);
	CUresult (*stream_query)(CUstream stream);
	CUresult (*wait_value)(CUstream stream, CUdeviceptr word, cuuint64_t value,
			       unsigned int flags);
	CUresult (*memset_d32_async)(CUdeviceptr ptr, unsigned int value, size_t n,
				     CUstream stream);
	CUresult (*memcpy_dtoh_async)(void *dst, CUdeviceptr src, size_t n, CUstream stream);
	CUresult (*launch_host_func)(CUstream stream, CUhostFn function, void *argument);
	CUresult (*begin_capture)(CUstream stream, CUstreamCaptureMode mode);
	CUresult (*end_capture)(CUstream stream, CUgraph *graph);
	CUresult (*graph_instantiate)(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
	CUresult (*graph_launch)(CUgraphExec exec, CUstream stream);
	CUresult (*graph_exec_destroy)(CUgraphExec exec);
	CUresult (*graph_destroy)(CUgraph graph);
	CUresult (*host_pointer)(CUdeviceptr *ret, void *host, unsigned int flags);

	/* Kernels. The fake driver has none: launch_kernel is NULL. */
	CUresult (*module_load_data)(CUmodule *module, const void *image);
	CUresult (*module_get_function)(CUfunction *function, CUmodule module, const char *name);
	CUresult (*launch_kernel)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
				  unsigned by, unsigned bz, unsigned shared, CUstream stream,
				  void **params, void **extra);
	CUfunction store, scribble, watch, fill_at, check_at; /* of kernels_load() */
};

/* Loads libcuda.so.1, initialises it and makes the primary context of device `ordinal` current.
 * Returns false if there is no driver or no such device. */
bool driver_open(struct driver *d, int ordinal);

/* Releases the context. */
void driver_close(const struct driver *d, int ordinal);

/* Returns false for the fake driver. */
bool driver_has_kernels(const struct driver *d);
