/* SPDX-License-Identifier: MIT
 *
 * Physical allocations and their handles. A handle is a number, never used again, so that one that
 * was released is known as such. A released handle's memory stays where it is mapped or exported:
 * the mapping holds a reference, the fd the memfd itself.
 */
#include "tests/fakecuda/fake_vmm.h"

#include "proto/base/list.h"
#include "tests/fakecuda/fake_device.h"

#include <fcntl.h>
#include <string.h>

struct handle {
	struct list link; /* handles */
	CUmemGenericAllocationHandle number;
	struct memory *memory;
};

static struct list handles = { &handles, &handles };
static CUmemGenericAllocationHandle next_number = 0x1001;

static struct handle *handle_find(CUmemGenericAllocationHandle number)
{
	struct handle *h;

	list_foreach (h, &handles, link)
		if (h->number == number)
			return h;
	return NULL;
}

/* Takes the reference on the memory. */
static CUresult handle_new(struct memory *memory, CUmemGenericAllocationHandle *ret)
{
	struct handle *h = malloc(sizeof(*h));

	if (!h) {
		memory_unref(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	h->memory = memory;
	h->number = next_number++;
	list_insert(&handles, &h->link);
	*ret = h->number;
	return CUDA_SUCCESS;
}

struct memory *vmm_memory(CUmemGenericAllocationHandle handle)
{
	struct handle *h = handle_find(handle);

	return h ? h->memory : NULL;
}

unsigned long vmm_alive(void)
{
	unsigned long n = 0;
	struct handle *h;

	list_foreach (h, &handles, link)
		n++;
	return n;
}

CUresult vmm_place(CUmemLocation location, bool shareable, struct memory_tag *ret)
{
	int gpu = device_physical(location.id);

	switch (location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		if (gpu < 0)
			return CUDA_ERROR_INVALID_DEVICE;
		ret->id = gpu;
		break;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (location.id < 0)
			return CUDA_ERROR_INVALID_VALUE;
		ret->id = location.id;
		break;
	case CU_MEM_LOCATION_TYPE_HOST:
		if (shareable)
			return CUDA_ERROR_INVALID_VALUE;
		ret->id = 0;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	ret->location = location.type;
	return CUDA_SUCCESS;
}

static CUresult check_prop(const CUmemAllocationProp *prop, struct memory_tag *ret)
{
	bool shareable;

	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	shareable = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
	if (shareable && prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return vmm_place(prop->location, shareable, ret);
}

/* The total memory there: a GPU's, or the machine's. */
static uint64_t place_bytes(const struct memory_tag *tag)
{
	if (tag->location == CU_MEM_LOCATION_TYPE_DEVICE)
		return device_bytes();
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static CUresult vmm_create(CUmemGenericAllocationHandle *ret, size_t size,
			   const CUmemAllocationProp *prop)
{
	struct memory_tag tag = { .kind = MEMORY_VMM, .bytes = size };
	CUresult result = check_prop(prop, &tag);
	struct memory *memory;

	if (result)
		return result;
	if (!ret || !size || size % MEMORY_STEP)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > place_bytes(&tag))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = memory_new(tag, &memory);
	if (result)
		return result;

	if (tag.location == CU_MEM_LOCATION_TYPE_DEVICE)
		result = state_claim(memory->fd, &memory->claim, size);
	if (result) {
		memory_unref(memory);
		return result;
	}
	if (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE)
		memory_seclude(memory);
	if (is_broken("zero"))
		memset(memory->alias, 1, MEMORY_STEP);
	return handle_new(memory, ret);
}

static CUresult vmm_release(CUmemGenericAllocationHandle handle)
{
	struct handle *h = handle_find(handle);

	if (!h)
		return misuse("cuMemRelease of handle %llx, which is none (any more)", handle);
	list_drop(&h->link);
	memory_give_back(h->memory);
	memory_unref(h->memory);
	free(h);
	return CUDA_SUCCESS;
}

static CUresult vmm_export(int *ret, CUmemGenericAllocationHandle handle,
			   CUmemAllocationHandleType type, unsigned long long flags)
{
	struct memory *m = vmm_memory(handle);
	int fd;

	if (!m || !ret || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (m->fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*ret = fd;
	return CUDA_SUCCESS;
}

static CUresult vmm_import(CUmemGenericAllocationHandle *ret, int fd,
			   CUmemAllocationHandleType type)
{
	struct memory *memory;
	CUresult result;

	if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	result = memory_import(fd, MEMORY_VMM, &memory);
	if (result)
		return result;
	if (memory->tag.location == CU_MEM_LOCATION_TYPE_DEVICE &&
	    device_ordinal(memory->tag.id) < 0) {
		memory_unref(memory);
		return CUDA_ERROR_INVALID_DEVICE;
	}
	return handle_new(memory, ret);
}

static CUresult vmm_granularity(size_t *ret, const CUmemAllocationProp *prop)
{
	struct memory_tag tag;
	CUresult result;

	if (!ret || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	result = vmm_place(prop->location, false, &tag);
	if (result)
		return result;
	*ret = MEMORY_STEP;
	return CUDA_SUCCESS;
}

static CUresult vmm_prop(CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle)
{
	struct memory *m = vmm_memory(handle);

	if (!m || !ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED };
	ret->location.type = m->tag.location;
	ret->location.id = m->tag.location == CU_MEM_LOCATION_TYPE_DEVICE
				   ? device_ordinal(m->tag.id)
				   : m->tag.id;
	if (m->fd >= 0)
		ret->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	return FAKE_CALL(CALL_PLAIN, vmm_create(handle, size, prop));
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return FAKE_CALL(CALL_GIVES_BACK, vmm_release(handle));
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	return FAKE_CALL(CALL_PLAIN, vmm_export(shareable, handle, type, flags));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
					CUmemAllocationHandleType type)
{
	return FAKE_CALL(CALL_PLAIN, vmm_import(handle, (int)(intptr_t)shareable, type));
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	return FAKE_CALL(CALL_PLAIN, vmm_granularity(granularity, prop));
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle handle)
{
	return FAKE_CALL(CALL_PLAIN, vmm_prop(prop, handle));
}
