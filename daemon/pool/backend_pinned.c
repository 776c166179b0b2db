/* SPDX-License-Identifier: MIT
 *
 * Host memory that the driver has pinned, so that GPUs and CPUs map the same pages. All driver
 * calls are in backend_vmm.c.
 *
 * It is made on a NUMA node, never "on the host": memory of a HOST location can't be shared with
 * another process, that of HOST_NUMA can (driver 580). Pinning takes 16 to 19 ms for 64 MiB, so
 * freed blocks are kept for reuse, as in a vmm pool.
 */
#include "daemon/pool/backend_vmm.h"
#include "daemon/pool/backends.h"

/* A machine without NUMA has one node, 0. */
static int choose_node(const struct pool *pool)
{
	if (pool->config.numa_node >= 0)
		return pool->config.numa_node;
	return pool->device->numa_node >= 0 ? pool->device->numa_node : 0;
}

static int pinned_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_HOST_NUMA };

	ret->numa_node = choose_node(pool);
	location.id = ret->numa_node;
	return vmm_open_at(pool, location, ret, f);
}

const struct pool_ops pinned_ops = {
	.kind = POOL_PINNED,
	.needs_device = true,
	.reuses_pending = true,
	.open = pinned_open,
	.alloc = vmm_alloc,
	.free = vmm_free,
	.close = vmm_close,
	.verify = vmm_verify,
};
