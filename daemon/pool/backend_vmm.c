/* SPDX-License-Identifier: MIT
 *
 * The default kind on a GPU: each block is one allocation of the driver in the GPU's own memory.
 *
 * A client maps a block read-only or writable by the GPU's page tables, maps only what it was lent,
 * and keeps it when the daemon dies. A freed block of the same user and size is reused as it is:
 * what is in it was that user's own. All driver calls are in vmem.c.
 */
#include "daemon/pool/backend_vmem.h"
#include "daemon/pool/backends.h"

static int vmm_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_DEVICE };

	location.id = pool->device->ordinal;
	return vmem_open(pool, location, ret, f);
}

const struct pool_ops vmm_ops = {
	.kind = POOL_VMM,
	.needs_device = true,
	.reuses_pending = true,
	.open = vmm_open,
	.alloc = vmem_alloc,
	.free = vmem_free,
	.close = vmem_close,
	.verify = vmem_verify,
};
