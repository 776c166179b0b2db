/* SPDX-License-Identifier: MIT
 *
 * Pinned memory: an allocation of the driver's on a NUMA node of the host, which the CPU and a GPU
 * map at one address. The GPU is the one that the caller names, else that of the thread's current
 * context, else GPU 0. Read-only access holds for both: a CPU that writes there gets a SIGSEGV.
 */
#include "client/lib/base/error.h"
#include "client/lib/map/context.h"
#include "client/lib/map/window.h"

#include <errno.h>
#include <stdint.h>

enum { FOR_GPU, FOR_CPU, FOR_BOTH };

static void fill_access(const struct map_private *p, bool write, CUmemAccessDesc *access)
{
	CUmemAccess_flags flags =
		write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;

	access[FOR_GPU] = (CUmemAccessDesc){
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = p->device },
		.flags = flags,
	};
	access[FOR_CPU] = (CUmemAccessDesc){
		.location = { .type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = p->numa_node },
		.flags = flags,
	};
}

static int pinned_prepare(const struct map_request *r, int *ret_owner, int *ret_device)
{
	int n = 0, device, result = cuda_start();

	if (result < 0)
		return result;
	if (r->pool->numa_node < 0)
		return error_set(EPROTO, "the daemon sent no NUMA node of the buffer's pool");
	result = cuda_check("cuDeviceGetCount", cuda.device_get_count(&n));
	if (result < 0)
		return result;
	device = r->device < 0 ? context_current_device() : r->device;
	if (device >= n)
		return error_set(ENODEV, "this process has no GPU %d", device);
	*ret_device = device;
	return 0;
}

static int pinned_map(const struct map_request *r, struct map_private *p)
{
	CUmemAccessDesc access[FOR_BOTH];
	CUdeviceptr ptr;
	int result;

	fill_access(p, p->write, access);
	result = window_open(r->fd, p->bytes, access, FOR_BOTH, &ptr);
	if (result < 0)
		return result;
	p->map.device_ptr = p->map.host_ptr = (void *)(uintptr_t)ptr;
	return 0;
}

static int pinned_protect(struct map_private *p)
{
	CUmemAccessDesc access[FOR_BOTH];

	fill_access(p, false, access);
	return window_set_access((uintptr_t)p->map.host_ptr, p->bytes, access, FOR_BOTH);
}

const struct map_kind map_pinned = { .knows_access = true,
				     .knows_device = true,
				     .prepare = pinned_prepare,
				     .map = pinned_map,
				     .unmap = window_unmap,
				     .protect = pinned_protect };
