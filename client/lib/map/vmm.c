/* SPDX-License-Identifier: MIT
 *
 * vmm memory: one allocation of the GPU for each buffer, mapped through its own fd for its own GPU
 * or a peer of that. The GPU's page tables enforce read-only access: a kernel that writes there
 * ends its own process and no other. Only waiting needs a context.
 */
#include "client/lib/map/cuda.h"

#include <stdint.h>

static int vmm_map(const struct map_request *r, struct map_private *p)
{
	CUmemAccessDesc access = window_access(CU_MEM_LOCATION_TYPE_DEVICE, p->device, p->write);
	CUdeviceptr ptr = (uintptr_t)p->map.device_ptr;
	int result = window_open(r->fd, p->bytes, &access, 1, &ptr);

	if (result < 0)
		return result;
	p->map.device_ptr = (void *)(uintptr_t)ptr;
	return 0;
}

static int vmm_protect(struct map_private *p)
{
	return window_give(p, p->shared | 1ull << p->device, false);
}

const struct map_kind map_vmm = { .knows_access = true,
				  .knows_device = true,
				  .prepare = context_find_devices,
				  .map = vmm_map,
				  .unmap = window_unmap,
				  .protect = vmm_protect,
				  .share = window_share };
