/* SPDX-License-Identifier: MIT
 *
 * vmm memory: one allocation of the GPU for each buffer, mapped through its own fd for the GPU that
 * it is on, or for a peer of it. Read-only is kept by the GPU's page tables: a kernel that writes
 * there ends its own process and nobody else's. No context is needed but for waiting.
 */
#include "client/map/context.h"
#include "client/map/kind.h"
#include "client/map/window.h"

#include <stdint.h>

static CUmemAccessDesc access_of(int device, bool write)
{
	return (CUmemAccessDesc){ .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
				  .flags = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						 : CU_MEM_ACCESS_FLAGS_PROT_READ };
}

static int vmm_prepare(const struct map_request *r, int *ret_device)
{
	const struct cuda *cu;
	int owner, result = cuda_start(&cu);

	return result < 0 ? result : context_find_devices(cu, r, &owner, ret_device);
}

static int vmm_map(const struct map_request *r, struct map_private *p)
{
	CUmemAccessDesc access = access_of(p->device, p->write);
	const struct cuda *cu;
	CUdeviceptr ptr;
	int owner, device, result = cuda_start(&cu);

	if (result == 0)
		result = context_find_devices(cu, r, &owner, &device);
	if (result == 0)
		result = window_open(cu, r->fd, p->bytes, &access, 1, &ptr);
	if (result < 0)
		return result;
	p->map.device_ptr = (void *)(uintptr_t)ptr;
	p->map.device = owner;
	return 0;
}

static int vmm_unmap(struct map_private *p)
{
	const struct cuda *cu;
	int r = cuda_start(&cu);

	return r < 0 ? r : window_close(cu, (uintptr_t)p->map.device_ptr, p->bytes);
}

static int vmm_protect(struct map_private *p)
{
	CUmemAccessDesc access = access_of(p->device, false);
	const struct cuda *cu;
	int r = cuda_start(&cu);

	return r < 0 ? r
		     : window_set_access(cu, (uintptr_t)p->map.device_ptr, p->bytes, &access, 1);
}

static int vmm_synchronize(const struct map_private *p)
{
	const struct cuda *cu;
	int r = cuda_start(&cu);

	return r < 0 ? r : context_synchronize(cu, p->device);
}

const struct map_kind map_vmm = { .knows_access = true,
				  .knows_device = true,
				  .prepare = vmm_prepare,
				  .map = vmm_map,
				  .unmap = vmm_unmap,
				  .protect = vmm_protect,
				  .synchronize = vmm_synchronize };
