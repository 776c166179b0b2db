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
#include "client/gpushm_array.h"

#include "proto/base/cuda_table.h"
#include "proto/base/own.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* clang-format off */
#define CUDA_CALLS(X) \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) \
	X(cuCtxSetCurrent) X(cuModuleLoad) X(cuModuleUnload) X(cuModuleGetFunction) \
	X(cuLaunchKernel) X(cuCtxSynchronize)
/* clang-format on */

static struct cuda {
	CUDA_CALLS(CUDA_MEMBER)
} cuda;

static const struct libcuda_symbol symbols[] = { CUDA_CALLS(CUDA_SYMBOL) };

static int load_kernel(CUmodule *ret_module, CUfunction *ret_kernel)
{
	char path[4096 + sizeof(".ptx")];
	ssize_t n = readlink("/proc/self/exe", path, 4096);

	if (n < 0)
		return -ENOTSUP;
	snprintf(path + n, sizeof(path) - (size_t)n, ".ptx");

	if (cuda.cuModuleLoad(ret_module, path) != CUDA_SUCCESS)
		return -ENOTSUP;
	if (cuda.cuModuleGetFunction(ret_kernel, *ret_module, "digits") != CUDA_SUCCESS) {
		cuda.cuModuleUnload(*ret_module);
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
	result = cuda.cuLaunchKernel(kernel, (unsigned int)gpushm_array_dim(images, 0), 1, 1,
				     DIGITS_HIDDEN, 1, 1, 0, NULL, arguments, NULL);
	if (result == CUDA_SUCCESS)
		result = cuda.cuCtxSynchronize();
	cuda.cuModuleUnload(module);
	return result == CUDA_SUCCESS ? 0 : -EIO;
}

int digits_gpu(const struct digits_net *net, const struct gpushm_array *images,
	       struct gpushm_array *answers)
{
	int ordinal = gpushm_buffer_device(gpushm_array_buffer(images));
	CUdevice device = 0;
	CUcontext context = NULL;
	char why[256];
	int r = 0;

	if (!libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why)) ||
	    cuda.cuInit(0) != CUDA_SUCCESS || cuda.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
	    cuda.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
		return -ENOTSUP;

	r = cuda.cuCtxSetCurrent(context) == CUDA_SUCCESS ? run_kernel(net, images, answers)
							  : -ENOTSUP;
	cuda.cuCtxSetCurrent(NULL);
	cuda.cuDevicePrimaryCtxRelease(device);
	return r;
}
