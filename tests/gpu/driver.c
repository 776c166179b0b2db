/* SPDX-License-Identifier: MIT
 *
 * The tests' own access to the GPU: its table of calls, and a context.
 */
#include "tests/gpu/driver.h"

#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <stddef.h>

static const struct libcuda_symbol symbols[] = {
	{ "cuInit", offsetof(struct driver, init) },
	{ "cuDeviceGetCount", offsetof(struct driver, device_get_count) },
	{ "cuDeviceGetName", offsetof(struct driver, device_get_name) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct driver, primary_ctx_retain) },
	{ "cuDevicePrimaryCtxRelease_v2", offsetof(struct driver, primary_ctx_release) },
	{ "cuCtxSetCurrent", offsetof(struct driver, ctx_set_current) },
	{ "cuCtxSynchronize", offsetof(struct driver, ctx_synchronize) },
	{ "cuMemGetInfo_v2", offsetof(struct driver, mem_get_info) },
	{ "cuMemsetD8_v2", offsetof(struct driver, memset_d8) },
	{ "cuMemsetD32_v2", offsetof(struct driver, memset_d32) },
	{ "cuMemcpyDtoH_v2", offsetof(struct driver, memcpy_dtoh) },
	{ "cuMemcpyHtoD_v2", offsetof(struct driver, memcpy_htod) },
	{ "cuMemHostRegister_v2", offsetof(struct driver, mem_host_register) },
	{ "cuMemHostUnregister", offsetof(struct driver, mem_host_unregister) },
	{ "cuMemAlloc_v2", offsetof(struct driver, mem_alloc) },
	{ "cuMemFree_v2", offsetof(struct driver, mem_free) },
	{ "cuMemCreate", offsetof(struct driver, mem_create) },
	{ "cuMemExportToShareableHandle", offsetof(struct driver, mem_export) },
	{ "cuMemImportFromShareableHandle", offsetof(struct driver, mem_import) },
	{ "cuMemRelease", offsetof(struct driver, mem_release) },
	{ "cuMemAddressReserve", offsetof(struct driver, mem_address_reserve) },
	{ "cuMemAddressFree", offsetof(struct driver, mem_address_free) },
	{ "cuMemMap", offsetof(struct driver, mem_map) },
	{ "cuMemUnmap", offsetof(struct driver, mem_unmap) },
	{ "cuMemSetAccess", offsetof(struct driver, mem_set_access) },
	{ "cuMemPoolCreate", offsetof(struct driver, mempool_create) },
	{ "cuMemPoolSetAttribute", offsetof(struct driver, mempool_set_attribute) },
	{ "cuMemPoolExportToShareableHandle", offsetof(struct driver, mempool_export) },
	{ "cuMemPoolImportFromShareableHandle", offsetof(struct driver, mempool_import) },
	{ "cuMemPoolSetAccess", offsetof(struct driver, mempool_set_access) },
	{ "cuMemPoolExportPointer", offsetof(struct driver, mempool_export_pointer) },
	{ "cuMemPoolImportPointer", offsetof(struct driver, mempool_import_pointer) },
	{ "cuMemPoolDestroy", offsetof(struct driver, mempool_destroy) },
	{ "cuMemAllocFromPoolAsync", offsetof(struct driver, mempool_alloc_async) },
	{ "cuMemFreeAsync", offsetof(struct driver, mem_free_async) },
	{ "cuStreamSynchronize", offsetof(struct driver, stream_synchronize) },
	{ "cuStreamCreate", offsetof(struct driver, stream_create) },
	{ "cuStreamDestroy_v2", offsetof(struct driver, stream_destroy) },
	{ "cuStreamQuery", offsetof(struct driver, stream_query) },
	{ "cuStreamWaitValue64_v2", offsetof(struct driver, wait_value) },
	{ "cuMemsetD32Async", offsetof(struct driver, memset_d32_async) },
	{ "cuMemcpyDtoHAsync_v2", offsetof(struct driver, memcpy_dtoh_async) },
	{ "cuLaunchHostFunc", offsetof(struct driver, launch_host_func) },
	{ "cuStreamBeginCapture_v2", offsetof(struct driver, begin_capture) },
	{ "cuStreamEndCapture", offsetof(struct driver, end_capture) },
	{ "cuGraphInstantiateWithFlags", offsetof(struct driver, graph_instantiate) },
	{ "cuGraphLaunch", offsetof(struct driver, graph_launch) },
	{ "cuGraphExecDestroy", offsetof(struct driver, graph_exec_destroy) },
	{ "cuGraphDestroy", offsetof(struct driver, graph_destroy) },
	{ "cuMemHostGetDevicePointer_v2", offsetof(struct driver, host_pointer) },
};

static const struct libcuda_symbol kernel_symbols[] = {
	{ "cuModuleLoadData", offsetof(struct driver, module_load_data) },
	{ "cuModuleGetFunction", offsetof(struct driver, module_get_function) },
	{ "cuLaunchKernel", offsetof(struct driver, launch_kernel) },
};

bool driver_open(struct driver *d, int ordinal)
{
	CUcontext context;
	char why[256];

	*d = (struct driver){ 0 };
	if (!libcuda_load(symbols, array_size(symbols), d, why, sizeof(why)))
		return false;
	if (!libcuda_load(kernel_symbols, array_size(kernel_symbols), d, why, sizeof(why)))
		d->launch_kernel = NULL;
	return d->init(0) == CUDA_SUCCESS &&
	       d->primary_ctx_retain(&context, ordinal) == CUDA_SUCCESS &&
	       d->ctx_set_current(context) == CUDA_SUCCESS;
}

void driver_close(const struct driver *d, int ordinal)
{
	d->ctx_set_current(NULL);
	d->primary_ctx_release(ordinal);
}

bool driver_has_kernels(const struct driver *d)
{
	return d->launch_kernel;
}
