/* SPDX-License-Identifier: MIT
 *
 * The tests' own access to the GPU: a context, copies, imports, and two small kernels in PTX. The
 * driver compiles them when they are loaded, so the tests are built without a CUDA compiler.
 */
#include "tests/gpu/driver.h"

#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <stddef.h>

static const char kernels_ptx[] = ".version 7.0\n"
				  ".target sm_70\n"
				  ".address_size 64\n"
				  ".visible .entry store(.param .u64 address, .param .u32 value)\n"
				  "{\n"
				  "	.reg .u64 %a;\n"
				  "	.reg .u32 %v;\n"
				  "	ld.param.u64 %a, [address];\n"
				  "	ld.param.u32 %v, [value];\n"
				  "	st.global.u32 [%a], %v;\n"
				  "	ret;\n"
				  "}\n"
				  /* for (;;)
				   *	for (i = thread; i < n; i += threads)
				   *		words[i] = value;
				   */
				  ".visible .entry scribble(.param .u64 words, .param .u64 n,\n"
				  "			    .param .u32 value)\n"
				  "{\n"
				  "	.reg .u64 %at, %first, %end, %step;\n"
				  "	.reg .u32 %block, %thread, %size, %blocks, %v;\n"
				  "	.reg .pred %p;\n"
				  "	ld.param.u64 %first, [words];\n"
				  "	ld.param.u64 %end, [n];\n"
				  "	ld.param.u32 %v, [value];\n"
				  "	shl.b64 %end, %end, 2;\n"
				  "	add.u64 %end, %end, %first;\n"
				  "	mov.u32 %block, %ctaid.x;\n"
				  "	mov.u32 %size, %ntid.x;\n"
				  "	mov.u32 %thread, %tid.x;\n"
				  "	mov.u32 %blocks, %nctaid.x;\n"
				  "	mad.lo.u32 %thread, %block, %size, %thread;\n"
				  "	mad.wide.u32 %first, %thread, 4, %first;\n"
				  "	mul.lo.u32 %blocks, %blocks, %size;\n"
				  "	mul.wide.u32 %step, %blocks, 4;\n"
				  "again:\n"
				  "	mov.u64 %at, %first;\n"
				  "next:\n"
				  "	setp.ge.u64 %p, %at, %end;\n"
				  "	@%p bra again;\n"
				  "	st.volatile.global.u32 [%at], %v;\n"
				  "	add.u64 %at, %at, %step;\n"
				  "	bra next;\n"
				  "}\n";

#define BLOCKS 528 /* four for each of an H200's 132 multiprocessors */
#define THREADS 256

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
};

static const struct libcuda_symbol kernels[] = {
	{ "cuModuleLoadData", offsetof(struct driver, module_load_data) },
	{ "cuModuleGetFunction", offsetof(struct driver, module_get_function) },
	{ "cuLaunchKernel", offsetof(struct driver, launch_kernel) },
};

bool driver_open(struct driver *d, int ordinal)
{
	CUcontext context;
	char why[256];

	if (!libcuda_load(symbols, array_size(symbols), d, why, sizeof(why)))
		return false;
	if (!libcuda_load(kernels, array_size(kernels), d, why, sizeof(why)))
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

static CUresult load(const struct driver *d, const char *name, CUfunction *ret)
{
	CUmodule module;
	CUresult r = d->module_load_data(&module, kernels_ptx);

	return r == CUDA_SUCCESS ? d->module_get_function(ret, module, name) : r;
}

CUresult driver_store(const struct driver *d, CUdeviceptr address, unsigned value)
{
	void *params[] = { &address, &value };
	CUfunction store;
	CUresult r = load(d, "store", &store);

	if (r == CUDA_SUCCESS)
		r = d->launch_kernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
	return r == CUDA_SUCCESS ? d->ctx_synchronize() : r;
}

CUresult driver_load_scribble(const struct driver *d, CUfunction *ret)
{
	return load(d, "scribble", ret);
}

CUresult driver_scribble(const struct driver *d, CUfunction scribble, CUdeviceptr words,
			 unsigned long long n, unsigned value)
{
	void *params[] = { &words, &n, &value };

	return d->launch_kernel(scribble, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL);
}
