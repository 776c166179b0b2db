/* SPDX-License-Identifier: MIT
 *
 * Runs the kernel of digits.cu on arrays in GPU memory, through the driver's interface. libcuda is
 * opened at run time, so that the program also starts on a machine without a driver. The kernel is
 * read from a file beside the program, with the program's name and ".ptx".
 *
 * The device's primary context is used: the one that libgpushm has mapped the arrays for, and that
 * the CUDA runtime, PyTorch and CuPy use as well.
 */
#include "client/examples/digits.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static struct {
	CUresult (*init)(unsigned int);
	CUresult (*device_get)(CUdevice *, int);
	CUresult (*retain)(CUcontext *, CUdevice);
	CUresult (*release)(CUdevice);
	CUresult (*set_current)(CUcontext);
	CUresult (*module_load)(CUmodule *, const char *);
	CUresult (*module_unload)(CUmodule);
	CUresult (*get_function)(CUfunction *, CUmodule, const char *);
	CUresult (*launch)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
			   unsigned int, unsigned int, unsigned int, CUstream, void **, void **);
	CUresult (*synchronize)(void);
} cuda;

/* The names are those of the binary interface: cuda.h maps cuDevicePrimaryCtxRelease to its _v2. */
static int load_driver(void)
{
	const struct {
		const char *name;
		void *at;
	} calls[] = {
		{ "cuInit", &cuda.init },
		{ "cuDeviceGet", &cuda.device_get },
		{ "cuDevicePrimaryCtxRetain", &cuda.retain },
		{ "cuDevicePrimaryCtxRelease_v2", &cuda.release },
		{ "cuCtxSetCurrent", &cuda.set_current },
		{ "cuModuleLoad", &cuda.module_load },
		{ "cuModuleUnload", &cuda.module_unload },
		{ "cuModuleGetFunction", &cuda.get_function },
		{ "cuLaunchKernel", &cuda.launch },
		{ "cuCtxSynchronize", &cuda.synchronize },
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return -ENOTSUP;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*(void **)calls[i].at = dlsym(library, calls[i].name);
		if (!*(void **)calls[i].at)
			return -ENOTSUP;
	}
	return 0;
}

static int load_kernel(CUmodule *ret_module, CUfunction *ret_kernel)
{
	char path[4096 + sizeof(".ptx")];
	ssize_t n = readlink("/proc/self/exe", path, 4096);

	if (n < 0)
		return -ENOTSUP;
	snprintf(path + n, sizeof(path) - (size_t)n, ".ptx");

	if (cuda.module_load(ret_module, path) != CUDA_SUCCESS)
		return -ENOTSUP;
	if (cuda.get_function(ret_kernel, *ret_module, "digits") != CUDA_SUCCESS) {
		cuda.module_unload(*ret_module);
		return -ENOTSUP;
	}
	return 0;
}

static int run_kernel(const struct digits_net *net, const struct gpushm_array *images,
		      struct gpushm_array *answers)
{
	void *pointers[] = { gpushm_array_device_ptr(net->w1), gpushm_array_device_ptr(net->b1),
			     gpushm_array_device_ptr(net->w2), gpushm_array_device_ptr(net->b2),
			     gpushm_array_device_ptr(images),  gpushm_array_device_ptr(answers) };
	void *arguments[] = { &pointers[0], &pointers[1], &pointers[2],
			      &pointers[3], &pointers[4], &pointers[5] };
	CUmodule module = NULL;
	CUfunction kernel = NULL;
	CUresult result = CUDA_SUCCESS;
	int r = load_kernel(&module, &kernel);

	if (r < 0)
		return r;
	result = cuda.launch(kernel, (unsigned int)gpushm_array_dim(images, 0), 1, 1, DIGITS_HIDDEN,
			     1, 1, 0, NULL, arguments, NULL);
	if (result == CUDA_SUCCESS)
		result = cuda.synchronize();
	cuda.module_unload(module);
	return result == CUDA_SUCCESS ? 0 : -EIO;
}

int digits_gpu(const struct digits_net *net, const struct gpushm_array *images,
	       struct gpushm_array *answers)
{
	int ordinal = gpushm_buffer_device(gpushm_array_buffer(images));
	CUdevice device = 0;
	CUcontext context = NULL;
	int r = load_driver();

	if (r < 0)
		return r;
	if (cuda.init(0) != CUDA_SUCCESS || cuda.device_get(&device, ordinal) != CUDA_SUCCESS ||
	    cuda.retain(&context, device) != CUDA_SUCCESS)
		return -ENOTSUP;

	r = cuda.set_current(context) == CUDA_SUCCESS ? run_kernel(net, images, answers) : -ENOTSUP;
	cuda.set_current(NULL);
	cuda.release(device);
	return r;
}
