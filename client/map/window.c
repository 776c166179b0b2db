/* SPDX-License-Identifier: MIT
 *
 * Import, reserve, map, set access, and the way back. The window has exactly the allocation's size:
 * a handle must be mapped whole (CUDA Driver API, cuMemMap), and what is reserved beyond it is
 * address space that others will miss. The handle is released as soon as the window holds the
 * memory: the mapping keeps it.
 *
 * A window is an address and a size; whose it is, is written in the register of maps.
 */
#include "client/map/window.h"

#include "client/base/error.h"

#include <errno.h>
#include <stdint.h>

int window_set_access(const struct cuda *cu, CUdeviceptr ptr, size_t bytes,
		      const CUmemAccessDesc *access, size_t n_access)
{
	CUresult result = cu->mem_set_access(ptr, bytes, access, n_access);

	return result == CUDA_SUCCESS ? 0 : cuda_failed("cuMemSetAccess", result);
}

static int map_at(const struct cuda *cu, CUdeviceptr ptr, size_t bytes,
		  CUmemGenericAllocationHandle handle, const CUmemAccessDesc *access,
		  size_t n_access)
{
	CUresult result = cu->mem_map(ptr, bytes, 0, handle, 0);
	int r;

	if (result != CUDA_SUCCESS)
		return cuda_failed("cuMemMap", result);
	r = window_set_access(cu, ptr, bytes, access, n_access);
	if (r < 0)
		cu->mem_unmap(ptr, bytes);
	return r;
}

static int open_at(const struct cuda *cu, size_t bytes, CUmemGenericAllocationHandle handle,
		   const CUmemAccessDesc *access, size_t n_access, CUdeviceptr *ret)
{
	CUdeviceptr ptr;
	CUresult result;
	int r;

	result = cu->mem_address_reserve(&ptr, bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuMemAddressReserve", result);
	r = map_at(cu, ptr, bytes, handle, access, n_access);
	if (r < 0) {
		cu->mem_address_free(ptr, bytes);
		return r;
	}
	*ret = ptr;
	return 0;
}

int window_open(const struct cuda *cu, int fd, size_t bytes, const CUmemAccessDesc *access,
		size_t n_access, CUdeviceptr *ret)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;
	int r;

	result = cu->mem_import(&handle, (void *)(uintptr_t)fd,
				CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuMemImportFromShareableHandle", result);
	r = open_at(cu, bytes, handle, access, n_access, ret);
	/* It can't be given back twice: a failure leaves a handle that nobody can name any more. */
	cu->mem_release(handle);
	return r;
}

int window_close(const struct cuda *cu, CUdeviceptr ptr, size_t bytes)
{
	CUresult result = cu->mem_unmap(ptr, bytes);

	/* Once unmapped, the memory is out of reach: if the driver keeps the addresses, only they
	 * are lost. It refuses to free what is still mapped, so this may be tried in any case. */
	cu->mem_address_free(ptr, bytes);
	return result == CUDA_SUCCESS ? 0 : cuda_failed("cuMemUnmap", result);
}
