/* SPDX-License-Identifier: MIT
 *
 * The floor's memory: the driver's calls in the necessary order.
 */
#include "proto/base/own.h"
#include "tests/bench/gpu.h"
#include "tests/bench/gpu_driver.h"

#include <string.h>

#define FD_TYPE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static const CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
static CUmemoryPool pool, imported;
static CUdeviceptr pointer;
static int first_export = -1;

static int make_vmm(uint64_t bytes)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .requestedHandleTypes = FD_TYPE,
					   .location = location };
	CUmemGenericAllocationHandle handle;
	int fd = -1;

	GPU_MUST(gpu.mem_create(&handle, bytes, &prop, 0));
	GPU_MUST(gpu.mem_export(&fd, handle, FD_TYPE, 0));
	GPU_MUST(gpu.mem_release(handle));
	return fd;
}

/* One export is alive all the time: without one the driver takes 20 times as long. */
int gpu_make_vmm(uint64_t bytes)
{
	if (first_export < 0)
		first_export = make_vmm(2u << 20);
	return make_vmm(bytes);
}

static void make_pool(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = FD_TYPE,
				 .location = location };
	cuuint64_t keep = UINT64_MAX;

	GPU_MUST(gpu.mempool_create(&pool, &props));
	GPU_MUST(gpu.mempool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

static CUdeviceptr make_pointer(uint64_t bytes, unsigned char record[RECORD_BYTES])
{
	CUmemPoolPtrExportData data;
	CUdeviceptr ptr;

	GPU_MUST(gpu.mempool_alloc_async(&ptr, bytes, pool, NULL));
	GPU_MUST(gpu.stream_synchronize(NULL));
	GPU_MUST(gpu.mempool_export_pointer(&data, ptr));
	memcpy(record, &data, RECORD_BYTES);
	return ptr;
}

int gpu_hold_mempool(uint64_t bytes, unsigned char record[RECORD_BYTES])
{
	static int fd = -1;

	if (!pool) {
		make_pool();
		GPU_MUST(gpu.mempool_export(&fd, pool, FD_TYPE, 0));
	}
	make_pointer(bytes, record);
	return fd;
}

void gpu_make_pointer(uint64_t bytes, unsigned char record[RECORD_BYTES])
{
	pointer = make_pointer(bytes, record);
}

void gpu_free_pointer(void)
{
	GPU_MUST(gpu.mem_free_async(pointer, NULL));
	GPU_MUST(gpu.stream_synchronize(NULL));
}

uint64_t gpu_map(int fd, uint64_t bytes, bool write)
{
	const CUmemAccessDesc access = { .location = location,
					 .flags = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
							: CU_MEM_ACCESS_FLAGS_PROT_READ };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	GPU_MUST(gpu.mem_import(&handle, (void *)(uintptr_t)fd, FD_TYPE));
	GPU_MUST(gpu.mem_address_reserve(&ptr, bytes, 0, 0, 0));
	GPU_MUST(gpu.mem_map(ptr, bytes, 0, handle, 0));
	GPU_MUST(gpu.mem_set_access(ptr, bytes, &access, 1));
	GPU_MUST(gpu.mem_release(handle));
	return ptr;
}

void gpu_unmap(uint64_t ptr, uint64_t bytes)
{
	GPU_MUST(gpu.mem_unmap(ptr, bytes));
	GPU_MUST(gpu.mem_address_free(ptr, bytes));
}

void gpu_import_pool(int fd)
{
	GPU_MUST(gpu.mempool_import(&imported, (void *)(uintptr_t)fd, FD_TYPE, 0));
}

uint64_t gpu_import_pointer(const unsigned char record[RECORD_BYTES])
{
	CUmemPoolPtrExportData data;
	CUdeviceptr ptr;

	memcpy(&data, record, RECORD_BYTES);
	GPU_MUST(gpu.mempool_import_pointer(&ptr, imported, &data));
	return ptr;
}

void gpu_release_pointer(uint64_t ptr)
{
	GPU_MUST(gpu.mem_free_async(ptr, NULL));
	GPU_MUST(gpu.stream_synchronize(NULL));
}

uint64_t gpu_alloc(uint64_t bytes)
{
	CUdeviceptr ptr;

	GPU_MUST(gpu.mem_alloc(&ptr, bytes));
	return ptr;
}

void gpu_free(uint64_t ptr)
{
	GPU_MUST(gpu.mem_free(ptr));
}
