/* SPDX-License-Identifier: MIT
 *
 * Loading the driver.
 */
#include "tests/bench/gpu_driver.h"

#include "proto/base/libcuda.h"
#include "proto/base/own.h"
#include "tests/bench/gpu.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

struct gpu_driver gpu;
void *gpu_library;
static char name[64];

static const struct libcuda_symbol symbols[] = {
	{ "cuInit", offsetof(struct gpu_driver, init) },
	{ "cuDeviceGetName", offsetof(struct gpu_driver, device_get_name) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct gpu_driver, primary_ctx_retain) },
	{ "cuDevicePrimaryCtxRelease_v2", offsetof(struct gpu_driver, primary_ctx_release) },
	{ "cuCtxSetCurrent", offsetof(struct gpu_driver, ctx_set_current) },
	{ "cuCtxSynchronize", offsetof(struct gpu_driver, ctx_synchronize) },
	{ "cuMemCreate", offsetof(struct gpu_driver, mem_create) },
	{ "cuMemExportToShareableHandle", offsetof(struct gpu_driver, mem_export) },
	{ "cuMemImportFromShareableHandle", offsetof(struct gpu_driver, mem_import) },
	{ "cuMemRelease", offsetof(struct gpu_driver, mem_release) },
	{ "cuMemAddressReserve", offsetof(struct gpu_driver, mem_address_reserve) },
	{ "cuMemAddressFree", offsetof(struct gpu_driver, mem_address_free) },
	{ "cuMemMap", offsetof(struct gpu_driver, mem_map) },
	{ "cuMemUnmap", offsetof(struct gpu_driver, mem_unmap) },
	{ "cuMemSetAccess", offsetof(struct gpu_driver, mem_set_access) },
	{ "cuMemPoolCreate", offsetof(struct gpu_driver, mempool_create) },
	{ "cuMemPoolSetAttribute", offsetof(struct gpu_driver, mempool_set_attribute) },
	{ "cuMemPoolExportToShareableHandle", offsetof(struct gpu_driver, mempool_export) },
	{ "cuMemPoolImportFromShareableHandle", offsetof(struct gpu_driver, mempool_import) },
	{ "cuMemPoolExportPointer", offsetof(struct gpu_driver, mempool_export_pointer) },
	{ "cuMemPoolImportPointer", offsetof(struct gpu_driver, mempool_import_pointer) },
	{ "cuMemAllocFromPoolAsync", offsetof(struct gpu_driver, mempool_alloc_async) },
	{ "cuMemFreeAsync", offsetof(struct gpu_driver, mem_free_async) },
	{ "cuStreamSynchronize", offsetof(struct gpu_driver, stream_synchronize) },
	{ "cuMemAlloc_v2", offsetof(struct gpu_driver, mem_alloc) },
	{ "cuMemFree_v2", offsetof(struct gpu_driver, mem_free) },
};
_Static_assert(array_size(symbols) * sizeof(void *) == sizeof(struct gpu_driver), "one is missing");

void gpu_must(const char *call, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "gpushm-bench: %s: CUresult %d\n", call, result);
	exit(1);
}

bool gpu_open(void)
{
	CUcontext context;
	char why[256];

	gpu_library = libcuda_load(symbols, array_size(symbols), &gpu, why, sizeof(why));
	if (!gpu_library || gpu.init(0) != CUDA_SUCCESS)
		return false;
	GPU_MUST(gpu.device_get_name(name, sizeof(name), 0));
	GPU_MUST(gpu.primary_ctx_retain(&context, 0));
	GPU_MUST(gpu.ctx_set_current(context));
	return true;
}

void gpu_close(void)
{
	GPU_MUST(gpu.ctx_set_current(NULL));
	GPU_MUST(gpu.primary_ctx_release(0));
}

const char *gpu_name(void)
{
	return name;
}

bool gpu_is_fake(void)
{
	return gpu_library && dlsym(gpu_library, "fakecuda_calls");
}
