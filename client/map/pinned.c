/* SPDX-License-Identifier: MIT
 *
 * Pinned memory: an allocation of the driver's on a NUMA node of the host, that the CPU and a GPU
 * map at one address. The GPU is the one asked for, else that of the calling thread's context, else
 * GPU 0. Read-only holds for both: a CPU that writes there takes a SIGSEGV.
 */
#include "client/base/error.h"
#include "client/map/context.h"
#include "client/map/kind.h"
#include "client/map/window.h"

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

static int pinned_prepare(const struct map_request *r, int *ret_device)
{
	const struct cuda *cu;
	int n = 0, device, result = cuda_start(&cu);
	CUresult status;

	if (result < 0)
		return result;
	if (r->pool->numa_node < 0)
		return error_set(EPROTO, "the daemon told no NUMA node of the buffer's pool");
	status = cu->device_get_count(&n);
	if (status != CUDA_SUCCESS)
		return cuda_failed("cuDeviceGetCount", status);
	device = r->device == GPUSHM_OWN_DEVICE ? context_current_device(cu) : r->device;
	if (device >= n)
		return error_set(ENODEV, "this process has no GPU %d", device);
	*ret_device = device;
	return 0;
}

static int pinned_map(const struct map_request *r, struct map_private *p)
{
	CUmemAccessDesc access[FOR_BOTH];
	const struct cuda *cu;
	CUdeviceptr ptr;
	int result = cuda_start(&cu);

	if (result < 0)
		return result;
	fill_access(p, p->write, access);
	result = window_open(cu, r->fd, p->bytes, access, FOR_BOTH, &ptr);
	if (result < 0)
		return result;
	p->map.device_ptr = p->map.host_ptr = (void *)(uintptr_t)ptr;
	return 0;
}

static int pinned_unmap(struct map_private *p)
{
	const struct cuda *cu;
	int r = cuda_start(&cu);

	return r < 0 ? r : window_close(cu, (uintptr_t)p->map.host_ptr, p->bytes);
}

static int pinned_protect(struct map_private *p)
{
	CUmemAccessDesc access[FOR_BOTH];
	const struct cuda *cu;
	int r = cuda_start(&cu);

	if (r < 0)
		return r;
	fill_access(p, false, access);
	return window_set_access(cu, (uintptr_t)p->map.host_ptr, p->bytes, access, FOR_BOTH);
}

static int pinned_synchronize(const struct map_private *p)
{
	const struct cuda *cu;
	int r = cuda_start(&cu);

	return r < 0 ? r : context_synchronize(cu, p->device);
}

const struct map_kind map_pinned = { .knows_access = true,
				     .knows_device = true,
				     .prepare = pinned_prepare,
				     .map = pinned_map,
				     .unmap = pinned_unmap,
				     .protect = pinned_protect,
				     .synchronize = pinned_synchronize };
