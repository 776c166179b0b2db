/* SPDX-License-Identifier: MIT
 *
 * Questions about memory: what is behind a pointer, how much of a GPU is free, and where a driver
 * function is. cuGetProcAddress gives the newest version of a function that is exported here.
 */
#include "tests/fakecuda/fake_context.h"
#include "tests/fakecuda/fake_device.h"
#include "tests/fakecuda/fake_range.h"

#include <dlfcn.h>
#include <stdio.h>

static void tell_device(const struct range *r, int *ret)
{
	*ret = r->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_ordinal(r->location.id) : 0;
}

static CUresult pointer_attribute(void *ret, CUpointer_attribute attribute, CUdeviceptr p)
{
	struct range *r = range_find(p);
	bool device = r && r->location.type == CU_MEM_LOCATION_TYPE_DEVICE;

	if (!ret || !r)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)ret = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)ret = p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (device)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)ret = p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		tell_device(r, ret);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)ret = r->start;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)ret = r->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(const void **)ret = r->pool;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(bool *)ret = (int)attribute == CU_POINTER_ATTRIBUTE_MAPPED;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* Attributes that a pointer does not have are left as they are. */
static CUresult pointer_attributes(unsigned int n, const CUpointer_attribute *which, void **ret,
				   CUdeviceptr p)
{
	if (!n || !which || !ret)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n; i++)
		pointer_attribute(ret[i], which[i], p);
	return CUDA_SUCCESS;
}

static CUresult memory_info(size_t *free_bytes, size_t *total)
{
	unsigned int gpu;
	CUresult result = context_gpu(&gpu);
	uint64_t used;

	if (result)
		return result;
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	used = state_used(gpu);
	*total = device_bytes();
	*free_bytes = used < *total ? *total - used : 0;
	return CUDA_SUCCESS;
}

/* The library itself, whatever it was loaded as. */
static void *own_library(void)
{
	Dl_info here;

	return dladdr((void *)own_library, &here) ? dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
						  : NULL;
}

static void *find_symbol(const char *symbol)
{
	static const char *const versions[] = { "_v4", "_v3", "_v2", "" };
	void *library = own_library(), *found = NULL;
	char name[128];

	for (int i = 0; library && !found && i < 4; i++) {
		snprintf(name, sizeof(name), "%s%s", symbol, versions[i]);
		found = dlsym(library, name);
	}
	if (library)
		dlclose(library);
	return found;
}

static CUresult proc_address(const char *symbol, void **ret, CUdriverProcAddressQueryResult *status)
{
	if (!symbol || !ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = find_symbol(symbol);
	if (!status)
		return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	*status = *ret ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *ret, CUpointer_attribute attribute, CUdeviceptr p)
{
	return FAKE_CALL(CALL_PLAIN, pointer_attribute(ret, attribute, p));
}

CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *which, void **ret,
				CUdeviceptr p)
{
	return FAKE_CALL(CALL_PLAIN, pointer_attributes(n, which, ret, p));
}

static CUresult address_range(CUdeviceptr *start, size_t *size, CUdeviceptr p)
{
	struct range *r = range_find(p);

	if (!r)
		return CUDA_ERROR_NOT_FOUND;
	if (start)
		*start = r->start;
	if (size)
		*size = r->size;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *start, size_t *size, CUdeviceptr p)
{
	return FAKE_CALL(CALL_PLAIN, address_range(start, size, p));
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
	return FAKE_CALL(CALL_PLAIN, memory_info(free_bytes, total));
}

CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags,
			  CUdriverProcAddressQueryResult *status)
{
	return FAKE_CALL(CALL_EARLY, proc_address(symbol, ret, status));
}
