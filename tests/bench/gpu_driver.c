/* SPDX-License-Identifier: MIT
 *
 * Opens and closes the driver of GPU 0.
 */
#include "tests/bench/gpu_driver.h"

#include "tests/bench/gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct driver gpu;
static char name[64];

void gpu_must(const char *call, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "gpushm-bench: %s: CUresult %d\n", call, result);
	exit(1);
}

bool gpu_open(void)
{
	if (!driver_open(&gpu, 0))
		return false;
	GPU_MUST(gpu.device_get_name(name, sizeof(name), 0));
	return true;
}

void gpu_close(void)
{
	driver_close(&gpu, 0);
}

const char *gpu_name(void)
{
	return name;
}

bool gpu_is_fake(void)
{
	return !driver_has_kernels(&gpu);
}
