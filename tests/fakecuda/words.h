/* SPDX-License-Identifier: MIT
 *
 * Words that the scenarios of the fake driver share: each is a driver call, or two, that must work
 * (or, where it is called try, may fail), with the arguments that they all want.
 */
#pragma once

#include "tests/fakecuda/scenario.h"

/* cuInit and the device's primary context, current. */
static inline CUcontext start_driver(int device)
{
	CUcontext context;

	OK(cu(cuInit)(0));
	OK(cu(cuDevicePrimaryCtxRetain)(&context, device));
	OK(cu(cuCtxSetCurrent)(context));
	return context;
}

static inline CUmemAccessDesc access_for(CUmemLocationType type, int id, CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){ .location = { .type = type, .id = id }, .flags = flags };
}

static inline CUmemAllocationProp vmm_prop(CUmemLocationType type, int id)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.type = type;
	prop.location.id = id;
	return prop;
}

static inline CUresult vmm_try(size_t bytes, CUmemGenericAllocationHandle *ret)
{
	CUmemAllocationProp prop = vmm_prop(CU_MEM_LOCATION_TYPE_DEVICE, 0);

	return cu(cuMemCreate)(ret, bytes, &prop, 0);
}

static inline CUmemGenericAllocationHandle vmm_new(size_t bytes)
{
	CUmemGenericAllocationHandle handle;

	OK(vmm_try(bytes, &handle));
	return handle;
}

static inline int vmm_export(CUmemGenericAllocationHandle handle)
{
	int fd;

	OK(cu(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0));
	return fd;
}

static inline CUmemGenericAllocationHandle vmm_import(int fd)
{
	CUmemGenericAllocationHandle handle;

	OK(cu(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return handle;
}

static inline CUdeviceptr vmm_reserve(size_t bytes)
{
	CUdeviceptr p;

	OK(cu(cuMemAddressReserve)(&p, bytes, 0, 0, 0));
	return p;
}

/* Reserved, mapped, and accessible as told to GPU 0. */
static inline CUdeviceptr vmm_map(CUmemGenericAllocationHandle handle, size_t bytes,
				  CUmemAccess_flags flags)
{
	CUmemAccessDesc access = access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, flags);
	CUdeviceptr p = vmm_reserve(bytes);

	OK(cu(cuMemMap)(p, bytes, 0, handle, 0));
	OK(cu(cuMemSetAccess)(p, bytes, &access, 1));
	return p;
}

static inline void vmm_unmap(CUdeviceptr p, size_t bytes)
{
	OK(cu(cuMemUnmap)(p, bytes));
	OK(cu(cuMemAddressFree)(p, bytes));
}

static inline unsigned int word_at(CUdeviceptr p)
{
	unsigned int word;

	OK(cu(cuMemcpyDtoH)(&word, p, sizeof(word)));
	return word;
}

static inline CUmemPoolProps pool_props(size_t max)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED };

	props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.maxSize = max;
	return props;
}

static inline CUmemoryPool pool_new(size_t max)
{
	CUmemPoolProps props = pool_props(max);
	CUmemoryPool pool;

	OK(cu(cuMemPoolCreate)(&pool, &props));
	return pool;
}

static inline int pool_export(CUmemoryPool pool)
{
	int fd;

	OK(cu(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						0));
	return fd;
}

static inline CUresult import_try(int fd, CUmemoryPool *ret)
{
	return cu(cuMemPoolImportFromShareableHandle)(ret, (void *)(intptr_t)fd,
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static inline CUmemoryPool pool_import(int fd)
{
	CUmemoryPool pool;

	OK(import_try(fd, &pool));
	return pool;
}

static inline CUresult take_try(CUmemoryPool pool, size_t bytes, CUdeviceptr *ret)
{
	return cu(cuMemAllocFromPoolAsync)(ret, bytes, pool, NULL);
}

static inline CUdeviceptr take(CUmemoryPool pool, size_t bytes)
{
	CUdeviceptr p;

	OK(take_try(pool, bytes, &p));
	return p;
}

static inline void give(CUdeviceptr p)
{
	OK(cu(cuMemFreeAsync)(p, NULL));
}
