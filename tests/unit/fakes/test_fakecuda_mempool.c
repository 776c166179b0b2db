/* SPDX-License-Identifier: MIT
 *
 * The fake driver's pools in the process that created them: what they allocate, refuse, keep and
 * reuse. test_fakecuda_import.c tests importers.
 */
#include "tests/fakecuda/words.h"

SCENARIO(a_pool_imported_twice_is_one_pool)
{
	CUmemoryPool pool, imported;
	int fd;

	start_driver(0);
	pool = pool_new(0);
	fd = pool_export(pool);
	MUST(fcntl(fd, F_GETFD) == 0);
	imported = pool_import(fd);
	MUST(imported != pool && pool_import(fd) == imported);
	close(fd);
	OK(cu(cuMemPoolDestroy)(imported));
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(a_wrong_fd_is_no_pool)
{
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	int fd;

	start_driver(0);
	handle = vmm_new(2 * MiB);
	fd = vmm_export(handle);
	GIVES(CUDA_ERROR_NOT_SUPPORTED, import_try(fd, &pool));
	GIVES(CUDA_ERROR_UNKNOWN, import_try(-1, &pool));
	close(fd);
	OK(cu(cuMemRelease)(handle));
}

SCENARIO(allocating_needs_a_context_and_creating_does_not)
{
	CUmemoryPool pool;
	CUcontext context;
	CUstream stream;
	CUdeviceptr p;

	OK(cu(cuInit)(0));
	pool = pool_new(0);
	close(pool_export(pool));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, take_try(pool, 4096, &p));
	OK(cu(cuDevicePrimaryCtxRetain)(&context, 0));
	OK(cu(cuCtxPushCurrent)(context));
	OK(cu(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(cu(cuCtxPopCurrent)(NULL));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, take_try(pool, 4096, &p));
	OK(cu(cuMemAllocFromPoolAsync)(&p, 4096, pool, stream));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuMemFreeAsync)(p, NULL));
	OK(cu(cuMemFreeAsync)(p, stream));
	OK(cu(cuStreamDestroy)(stream));
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(the_next_tenant_finds_what_the_last_one_left)
{
	CUdeviceptr first, second, third;
	CUmemoryPool pool;

	start_driver(0);
	pool = pool_new(0);
	first = take(pool, 2 * MiB);
	second = take(pool, 2 * MiB);
	third = take(pool, 2 * MiB);
	MUST(word_at(second) == 0);
	OK(cu(cuMemsetD32)(second, 0xdead, 1));
	give(second);
	MUST(take(pool, 2 * MiB) == second);
	MUST(word_at(second) == 0xdead);
	give(first);
	give(third);
	give(second);
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(a_pool_is_no_larger_than_its_maximum_rounded_up)
{
	CUdeviceptr p[17], whole;
	CUmemoryPool pool;

	start_driver(0);
	pool = pool_new(1);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, take_try(pool, 32 * MiB + 1, &whole));
	for (int i = 0; i < 16; i++)
		p[i] = take(pool, 2 * MiB);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, take_try(pool, 1, &p[16]));
	for (int i = 0; i < 16; i += 2)
		give(p[i]);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, take_try(pool, 4 * MiB, &p[16]));
	for (int i = 1; i < 16; i += 2)
		give(p[i]);
	whole = take(pool, 32 * MiB);
	give(whole);
	OK(take_try(pool, 0, &p[0]));
	MUST(p[0] == 0);
	OK(cu(cuMemPoolDestroy)(pool));
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
	uint64_t value;

	OK(cu(cuMemPoolGetAttribute)(pool, which, &value));
	return value;
}

SCENARIO(a_trim_gives_back_what_is_free)
{
	CUmemoryPool pool;
	CUdeviceptr p;

	start_driver(0);
	pool = pool_new(0);
	p = take(pool, 100 * MiB);
	MUST(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 100 * MiB);
	MUST(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 128 * MiB);
	OK(cu(cuMemsetD32)(p, 5, 1));
	give(p);
	OK(cu(cuMemPoolTrimTo)(pool, 0));
	MUST(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
	MUST(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 100 * MiB);
	p = take(pool, 100 * MiB);
	MUST(word_at(p) == 0);
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(an_exported_fd_keeps_all_of_its_pool, .env = "FAKECUDA_MEMORY=64M")
{
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	int fd;

	start_driver(0);
	pool = pool_new(0);
	fd = pool_export(pool);
	give(take(pool, 64 * MiB));
	OK(cu(cuMemPoolTrimTo)(pool, 0));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &handle));
	OK(cu(cuMemPoolDestroy)(pool));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &handle));
	close(fd);
	OK(cu(cuMemRelease)(vmm_new(64 * MiB)));
}

SCENARIO(a_pool_and_vmm_memory_share_one_gpu, .env = "FAKECUDA_MEMORY=64M")
{
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUdeviceptr p, q;

	start_driver(0);
	handle = vmm_new(32 * MiB);
	pool = pool_new(0);
	p = take(pool, 32 * MiB);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, take_try(pool, 4096, &q));
	OK(cu(cuMemRelease)(handle));
	q = take(pool, 32 * MiB);
	give(p);
	give(q);
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(a_kernel_that_uses_a_freed_pointer_dies, .signal = SIGSEGV)
{
	CUdeviceptr p;

	start_driver(0);
	p = take(pool_new(0), 64);
	*(volatile char *)p = 1;
	give(p);
	*(volatile char *)p = 1;
}

SCENARIO(a_second_free_aborts, .signal = SIGABRT, .says = "not allocated")
{
	CUdeviceptr p;

	start_driver(0);
	p = take(pool_new(0), 64);
	give(p);
	cu(cuMemFreeAsync)(p, NULL);
}

SCENARIO(a_pool_destroyed_twice_aborts, .signal = SIGABRT, .says = "cuMemPoolDestroy")
{
	CUmemoryPool pool;

	start_driver(0);
	pool = pool_new(0);
	OK(cu(cuMemPoolDestroy)(pool));
	cu(cuMemPoolDestroy)(pool);
}

SCENARIO(pointers_outlive_a_destroyed_pool, .env = "FAKECUDA_STRICT=1")
{
	CUmemoryPool pool;
	CUdeviceptr p;

	start_driver(0);
	pool = pool_new(0);
	p = take(pool, 64);
	OK(cu(cuMemPoolDestroy)(pool));
	MUST(fake(fakecuda_handed_out)() == 1);
	give(p);
	OK(cu(cuDevicePrimaryCtxRelease)(0));
}

SCENARIO(only_a_pool_made_for_it_is_exported)
{
	CUmemPoolProps props = pool_props(0);
	CUmemPoolPtrExportData record;
	CUmemoryPool pool;
	CUdeviceptr p;
	int fd;

	start_driver(0);
	props.location.type = CU_MEM_LOCATION_TYPE_HOST;
	INVALID(cu(cuMemPoolCreate)(&pool, &props));
	props = pool_props(0);
	props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
	OK(cu(cuMemPoolCreate)(&pool, &props));
	INVALID(cu(cuMemPoolExportToShareableHandle)(&fd, pool,
						     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	p = take(pool, 64);
	INVALID(cu(cuMemPoolExportPointer)(&record, p));
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(a_pointer_is_not_exported_before_its_pool)
{
	CUmemPoolPtrExportData record;
	CUmemoryPool pool;
	CUdeviceptr p;

	start_driver(0);
	pool = pool_new(0);
	p = take(pool, 64);
	INVALID(cu(cuMemPoolExportPointer)(&record, p));
	close(pool_export(pool));
	OK(cu(cuMemPoolExportPointer)(&record, p));
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(a_peer_gpu_needs_access_to_a_pool, .env = "FAKECUDA_DEVICES=2")
{
	CUmemAccessDesc second =
		access_for(CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemAccessDesc none = access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
	CUmemoryPool pool;
	CUdeviceptr p, q;
	unsigned int word;

	start_driver(1);
	pool = pool_new(0);
	p = take(pool, 64);
	INVALID(cu(cuMemcpyDtoH)(&word, p, 4));
	GIVES(CUDA_ERROR_INVALID_DEVICE, cu(cuMemPoolSetAccess)(pool, &none, 1));
	OK(cu(cuMemPoolSetAccess)(pool, &second, 1));
	q = take(pool, 64);
	MUST(word_at(p) == 0 && word_at(q) == 0);
	give(p);
	give(q);
	OK(cu(cuMemPoolDestroy)(pool));
}

#define ALL(X)                                              \
	X(a_pool_imported_twice_is_one_pool)                \
	X(a_wrong_fd_is_no_pool)                            \
	X(allocating_needs_a_context_and_creating_does_not) \
	X(the_next_tenant_finds_what_the_last_one_left)     \
	X(a_pool_is_no_larger_than_its_maximum_rounded_up)  \
	X(a_trim_gives_back_what_is_free)                   \
	X(an_exported_fd_keeps_all_of_its_pool)             \
	X(a_pool_and_vmm_memory_share_one_gpu)              \
	X(a_kernel_that_uses_a_freed_pointer_dies)          \
	X(a_second_free_aborts)                             \
	X(a_pool_destroyed_twice_aborts)                    \
	X(pointers_outlive_a_destroyed_pool)                \
	X(only_a_pool_made_for_it_is_exported)              \
	X(a_pointer_is_not_exported_before_its_pool)        \
	X(a_peer_gpu_needs_access_to_a_pool)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY){ NULL, NULL } };

static void add(TCase *tests)
{
	ALL(SCENARIO_ADD)
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, "fakecuda mempool", add);
}
