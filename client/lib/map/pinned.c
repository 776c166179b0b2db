/* SPDX-License-Identifier: MIT
 *
 * Pinned memory: an allocation of the driver's on a NUMA node of the host, which the CPU and a GPU
 * map at one address. The GPU is the one that the caller names, else that of the thread's current
 * context, else GPU 0. Read-only access holds for both: a CPU that writes there gets a SIGSEGV.
 *
 * And memory of the process's own that the driver pins for all contexts (PORTABLE). What
 * gpushm_pin() has pinned counts as a connection does, because a primary context that ends takes
 * the pinning with it.
 */
#include "client/gpushm_handle.h"
#include "client/lib/base/error.h"
#include "client/lib/map/cuda.h"
#include "proto/base/own.h"

#include <errno.h>
#include <stdint.h>

enum { FOR_GPU, FOR_CPU, FOR_BOTH };

static void fill_access(const struct map_private *p, bool write, CUmemAccessDesc *access)
{
	access[FOR_GPU] = window_access(CU_MEM_LOCATION_TYPE_DEVICE, p->device, write);
	access[FOR_CPU] = window_access(CU_MEM_LOCATION_TYPE_HOST_NUMA, p->numa_node, write);
}

static int pinned_prepare(const struct map_request *r, int *ret_owner, int *ret_device)
{
	int device, result = cuda_start();

	if (result < 0)
		return result;
	if (r->pool->numa_node < 0)
		return error_set(EPROTO, "the daemon sent no NUMA node of the buffer's pool");
	device = r->device < 0 ? context_current_device() : r->device;
	if (device >= cuda_devices())
		return error_set(ENODEV, "this process has no GPU %d", device);
	*ret_device = device;
	return 0;
}

static int pinned_map(const struct map_request *r, struct map_private *p)
{
	CUmemAccessDesc access[FOR_BOTH];
	CUdeviceptr ptr = (uintptr_t)p->map.device_ptr;
	int result;

	fill_access(p, p->write, access);
	result = window_open(r->fd, p->bytes, access, r->to_fill_from ? FOR_CPU : FOR_BOTH, &ptr);
	if (result < 0)
		return result;
	p->map.device_ptr = (void *)(uintptr_t)ptr;
	p->map.host_ptr = r->to_fill_from ? NULL : p->map.device_ptr;
	return 0;
}

static int pinned_protect(struct map_private *p)
{
	CUmemAccessDesc access[FOR_BOTH];
	int r;

	fill_access(p, false, access);
	r = cuda_try(cuMemSetAccess, (uintptr_t)p->map.host_ptr, p->bytes, access, FOR_BOTH);
	return r < 0 ? r : window_give(p, p->shared, false);
}

const struct map_kind map_pinned = { .knows_access = true,
				     .knows_device = true,
				     .prepare = pinned_prepare,
				     .map = pinned_map,
				     .unmap = window_unmap,
				     .protect = pinned_protect,
				     .share = window_share };

/* ---- the process's own memory ---- */

static int pin(void *memory, size_t size, unsigned int flags, uint64_t *ret_address)
{
	CUdeviceptr address;
	int r = cuda_try(cuMemHostRegister, memory, size, flags);

	if (r < 0 || !ret_address)
		return r;
	r = cuda_try(cuMemHostGetDevicePointer, &address, memory, 0);
	if (r < 0)
		cuda.cuMemHostUnregister(memory);
	else
		*ret_address = address;
	return r;
}

int context_pin(int device, void *memory, size_t size, unsigned int flags, uint64_t *ret_address)
{
	/* While a stream captures a graph, the driver refuses to register memory, and ends the
	 * capture, if the thread does not say that it knows what it does: nothing of the capture
	 * uses the call. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	_cleanup_(map_leave) struct map_entered entered;
	int r = map_enter(device, &entered), relaxed = r;

	if (r == 0)
		relaxed = cuda_try(cuThreadExchangeStreamCaptureMode, &mode);
	flags |= CU_MEMHOSTREGISTER_PORTABLE | (ret_address ? CU_MEMHOSTREGISTER_DEVICEMAP : 0);
	if (r == 0 && size > 0)
		r = relaxed < 0 ? relaxed : pin(memory, size, flags, ret_address);
	else if (r == 0)
		r = cuda_try(cuMemHostUnregister, memory);
	if (relaxed == 0)
		cuda.cuThreadExchangeStreamCaptureMode(&mode);
	return r;
}

int gpushm_pin(void *memory, size_t size, uint32_t flags, void **ret_device_ptr)
{
	uint64_t address, *mapped = flags & GPUSHM_PIN_MAPPED ? &address : NULL;
	int r = error_null(memory, "memory");

	if (r == 0)
		r = error_flags(flags, GPUSHM_PIN_MAPPED);
	if (r == 0 && (size == 0 || (mapped && !ret_device_ptr)))
		r = error_set(EINVAL, "pinning needs a size, and mapping ret_device_ptr, too");
	if (r == 0)
		r = cuda_start();
	if (r < 0)
		return r;
	map_begin();
	r = context_pin(context_current_device(), memory, size, 0, mapped);
	if (r < 0)
		map_end();
	else if (mapped)
		*ret_device_ptr = (void *)(uintptr_t)address;
	return r;
}

int gpushm_unpin(void *memory)
{
	int r = error_null(memory, "memory");

	if (r == 0)
		r = cuda_start();
	if (r < 0)
		return r;
	map_begin();
	r = context_pin(context_current_device(), memory, 0, 0, NULL);
	map_end();
	if (r == 0)
		map_end(); /* of gpushm_pin() */
	return r;
}
