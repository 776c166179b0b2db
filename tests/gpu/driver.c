/* SPDX-License-Identifier: MIT
 *
 * The tests' own way to the GPU: a context, a memset, and a kernel of one instruction in PTX, which
 * the driver compiles when it is loaded, so that no compiler is needed to build the tests.
 */
#include "tests/gpu/driver.h"

#include "proto/own.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const char store_ptx[] = ".version 7.0\n"
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
				"}\n";

static const struct {
	const char *symbol;
	size_t offset;
} symbols[] = {
	{ "cuInit", offsetof(struct driver, init) },
	{ "cuDeviceGetCount", offsetof(struct driver, device_get_count) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct driver, primary_ctx_retain) },
	{ "cuCtxSetCurrent", offsetof(struct driver, ctx_set_current) },
	{ "cuCtxSynchronize", offsetof(struct driver, ctx_synchronize) },
	{ "cuMemsetD8_v2", offsetof(struct driver, memset_d8) },
	{ "cuMemsetD32_v2", offsetof(struct driver, memset_d32) },
	{ "cuMemcpyDtoH_v2", offsetof(struct driver, memcpy_dtoh) },
	{ "cuModuleLoadData", offsetof(struct driver, module_load_data) },
	{ "cuModuleGetFunction", offsetof(struct driver, module_get_function) },
	{ "cuLaunchKernel", offsetof(struct driver, launch_kernel) },
};

bool driver_open(struct driver *d, int ordinal)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CUcontext context;

	if (!lib)
		return false;
	for (size_t i = 0; i < array_size(symbols); i++) {
		void *found = dlsym(lib, symbols[i].symbol);

		if (!found)
			return false;
		memcpy((char *)d + symbols[i].offset, &found, sizeof(found));
	}
	return d->init(0) == CUDA_SUCCESS &&
	       d->primary_ctx_retain(&context, ordinal) == CUDA_SUCCESS &&
	       d->ctx_set_current(context) == CUDA_SUCCESS;
}

CUresult driver_store(const struct driver *d, CUdeviceptr address, unsigned value)
{
	void *params[] = { &address, &value };
	CUmodule module;
	CUfunction store;
	CUresult r = d->module_load_data(&module, store_ptx);

	if (r == CUDA_SUCCESS)
		r = d->module_get_function(&store, module, "store");
	if (r == CUDA_SUCCESS)
		r = d->launch_kernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
	return r == CUDA_SUCCESS ? d->ctx_synchronize() : r;
}
