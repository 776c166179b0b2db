/* SPDX-License-Identifier: MIT
 *
 * What gpushmd asks NVIDIA's management library: how much memory of a GPU is free. 0: it is known;
 * 1 to 999: an error.
 */
#include "tests/fakecuda/fake_device.h"
#include "tests/fakecuda/fakecuda.h"

#include <stdint.h>

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci_id, void **ret)
{
	unsigned gpu = device_at_bus(pci_id);

	*ret = (void *)(uintptr_t)(gpu + 1);
	return gpu < GPUS_MAX ? 0 : 6; /* NVML_ERROR_NOT_FOUND */
}

int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *ret)
{
	ret->total = device_bytes();
	ret->used = state_used((unsigned)(uintptr_t)device - 1);
	ret->free = ret->used < ret->total ? ret->total - ret->used : 0;
	return 0;
}
