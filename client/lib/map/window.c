/* SPDX-License-Identifier: MIT
 *
 * Import, reserve, map, set access, and the way back. The window has exactly the allocation's size:
 * a handle must be mapped whole (CUDA Driver API, cuMemMap), and reserving more would waste address
 * space. The handle is released as soon as the window maps the memory, because the mapping keeps
 * it.
 */
#include "client/lib/map/cuda.h"

#include <stdint.h>

static int map_at(CUdeviceptr ptr, size_t bytes, CUmemGenericAllocationHandle handle,
		  const CUmemAccessDesc *access, size_t n_access)
{
	int r = cuda_try(cuMemMap, ptr, bytes, 0, handle, 0);

	if (r < 0)
		return r;
	r = cuda_try(cuMemSetAccess, ptr, bytes, access, n_access);
	if (r < 0)
		cuda.cuMemUnmap(ptr, bytes);
	return r;
}

/* *ptr: where; 0: addresses are reserved. */
static int map_handle(size_t bytes, CUmemGenericAllocationHandle handle,
		      const CUmemAccessDesc *access, size_t n_access, CUdeviceptr *ptr)
{
	CUdeviceptr kept = *ptr;
	int r = kept ? 0 : cuda_try(cuMemAddressReserve, ptr, bytes, 0, 0, 0);

	if (r < 0)
		return r;
	r = map_at(*ptr, bytes, handle, access, n_access);
	if (r < 0 && !kept)
		cuda.cuMemAddressFree(*ptr, bytes);
	return r;
}

int window_open(int fd, size_t bytes, const CUmemAccessDesc *access, size_t n_access,
		CUdeviceptr *ptr)
{
	CUmemGenericAllocationHandle handle;
	int r = cuda_try(cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd,
			 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (r < 0)
		return r;
	r = map_handle(bytes, handle, access, n_access, ptr);
	/* The error is ignored: the release cannot be repeated. */
	cuda.cuMemRelease(handle);
	return r;
}

int window_give(const struct map_private *p, uint64_t devices, bool write)
{
	int r = 0;

	for (; r == 0 && devices; devices &= devices - 1) {
		CUmemAccessDesc access =
			window_access(CU_MEM_LOCATION_TYPE_DEVICE, __builtin_ctzll(devices), write);

		r = cuda_try(cuMemSetAccess, (uintptr_t)p->map.device_ptr, p->bytes, &access, 1);
	}
	return r;
}

int window_share(struct map_private *p, int device)
{
	return window_give(p, 1ull << device, p->write);
}

int window_unmap(struct map_private *p, bool keep)
{
	CUdeviceptr ptr = (uintptr_t)p->map.device_ptr;
	CUresult result = p->mapped ? cuda.cuMemUnmap(ptr, p->bytes) : CUDA_SUCCESS;

	/* Once unmapped, the memory can't be reached: if the driver keeps the addresses, only they
	 * are lost. It refuses to free addresses that are still mapped, so this is always safe. */
	if (!keep)
		cuda.cuMemAddressFree(ptr, p->bytes);
	return cuda_check("cuMemUnmap", result);
}
