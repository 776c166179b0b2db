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
	CUresult (*ctx_set_current)(CUcontext ctx);
	CUresult (*ctx_synchronize)(void);
	CUresult (*memset_d8)(CUdeviceptr ptr, unsigned char value, size_t n);
	CUresult (*memset_d32)(CUdeviceptr ptr, unsigned int value, size_t n);
	CUresult (*memcpy_dtoh)(void *dst, CUdeviceptr src, size_t n);
	CUresult (*module_load_data)(CUmodule *module, const void *image);
	CUresult (*module_get_function)(CUfunction *function, CUmodule module, const char *name);
	CUresult (*launch_kernel)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
				  unsigned by, unsigned bz, unsigned shared, CUstream stream,
				  void **params, void **extra);
};

/* Loads libcuda.so.1, initialises it and makes device `ordinal`'s primary context current. False
 * where there is none. */
bool driver_open(struct driver *d, int ordinal);

/* Launches a kernel of one thread that stores `value` at `address`. */
CUresult driver_store(const struct driver *d, CUdeviceptr address, unsigned value);

#endif
