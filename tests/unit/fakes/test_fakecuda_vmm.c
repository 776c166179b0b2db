/* SPDX-License-Identifier: MIT
 *
 * The fake driver's vmm memory: handles, fds, mappings and access. test_fakecuda_state.c tests how
 * long memory counts as used.
 */
#include "tests/fakecuda/words.h"

#define RW CU_MEM_ACCESS_FLAGS_PROT_READWRITE

SCENARIO(memory_is_fresh_and_outlives_its_handle, .env = "FAKECUDA_STRICT=1")
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	start_driver(0);
	handle = vmm_new(4 * MiB);
	p = vmm_map(handle, 4 * MiB, RW);
	OK(cu(cuMemRelease)(handle));
	MUST(p % (2 * MiB) == 0);
	MUST(word_at(p) == 0 && word_at(p + 4 * MiB - 4) == 0);
	*(volatile unsigned int *)p = 0xcafe;
	MUST(word_at(p) == 0xcafe);
	OK(cu(cuMemsetD32)(p, 0x5eed, MiB));
	MUST(word_at(p + 4 * MiB - 4) == 0x5eed);
	OK(cu(cuMemsetD8)(p + 1, 0, 4 * MiB - 2));
	MUST(word_at(p) == 0xed && word_at(p + 4 * MiB - 4) == 0 && word_at(p + 4096) == 0);
	MUST(fake(fakecuda_handed_out)() == 2);
	vmm_unmap(p, 4 * MiB);
	OK(cu(cuDevicePrimaryCtxRelease)(0));
}

SCENARIO(an_exported_fd_alone_keeps_the_contents)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	int fd;

	start_driver(0);
	handle = vmm_new(2 * MiB);
	p = vmm_map(handle, 2 * MiB, RW);
	OK(cu(cuMemsetD32)(p, 0xfeed, 4));
	fd = vmm_export(handle);
	MUST(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	vmm_unmap(p, 2 * MiB);
	OK(cu(cuMemRelease)(handle));

	handle = vmm_import(fd);
	close(fd);
	p = vmm_map(handle, 2 * MiB, RW);
	MUST(word_at(p) == 0xfeed);
	vmm_unmap(p, 2 * MiB);
	OK(cu(cuMemRelease)(handle));
}

SCENARIO(an_imported_handle_is_not_exported_again)
{
	CUmemGenericAllocationHandle handle, imported;
	CUmemAllocationProp prop;
	int fd, again;

	OK(cu(cuInit)(0));
	handle = vmm_new(2 * MiB);
	fd = vmm_export(handle);
	imported = vmm_import(fd);
	MUST(imported != handle);
	INVALID(cu(cuMemExportToShareableHandle)(&again, imported,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cu(cuMemGetAllocationPropertiesFromHandle)(&prop, imported));
	MUST(prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == 0);
	MUST(prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
	close(fd);
	OK(cu(cuMemRelease)(handle));
	OK(cu(cuMemRelease)(imported));
}

static CUresult import_of(int fd)
{
	CUmemGenericAllocationHandle handle;

	return cu(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

SCENARIO(a_foreign_fd_is_not_imported)
{
	int fd = memfd_create("foreign", MFD_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC);

	OK(cu(cuInit)(0));
	GIVES(CUDA_ERROR_UNKNOWN, import_of(-1));
	GIVES(CUDA_ERROR_UNKNOWN, import_of(fd));
	MUST(ftruncate(fd, 2 * MiB + 4096) == 0);
	GIVES(CUDA_ERROR_UNKNOWN, import_of(fd));
	GIVES(CUDA_ERROR_UNKNOWN, import_of(null));
	close(fd);
	close(null);
}

SCENARIO(an_fd_of_ours_is_sealed)
{
	CUmemGenericAllocationHandle handle;
	int fd;

	OK(cu(cuInit)(0));
	handle = vmm_new(2 * MiB);
	fd = vmm_export(handle);
	MUST(ftruncate(fd, 4096) < 0 && errno == EPERM);
	close(fd);
	OK(cu(cuMemRelease)(handle));
}

SCENARIO(sizes_are_whole_steps_and_mappings_whole_handles)
{
	CUmemAllocationProp prop = vmm_prop(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	size_t step;

	OK(cu(cuInit)(0));
	OK(cu(cuMemGetAllocationGranularity)(&step, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	MUST(step == 2 * MiB);
	INVALID(vmm_try(2 * MiB + 1, &handle));
	INVALID(vmm_try(0, &handle));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(1024 * 1024 * MiB, &handle));
	INVALID(cu(cuMemAddressReserve)(&p, MiB, 0, 0, 0));
	handle = vmm_new(4 * MiB);
	p = vmm_reserve(8 * MiB);
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cu(cuMemMap)(p, 2 * MiB, 0, handle, 0));
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cu(cuMemMap)(p, 2 * MiB, 2 * MiB, handle, 0));
	OK(cu(cuMemMap)(p + 2 * MiB, 4 * MiB, 0, handle, 0));
	INVALID(cu(cuMemMap)(p + 4 * MiB, 4 * MiB, 0, handle, 0));
	OK(cu(cuMemUnmap)(p + 2 * MiB, 4 * MiB));
	OK(cu(cuMemAddressFree)(p, 8 * MiB));
	OK(cu(cuMemRelease)(handle));
}

SCENARIO(mappings_side_by_side_are_one_range)
{
	CUmemAccessDesc rw = access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, RW);
	CUmemGenericAllocationHandle first, second;
	CUdeviceptr p;

	start_driver(0);
	first = vmm_new(2 * MiB);
	second = vmm_new(2 * MiB);
	p = vmm_reserve(6 * MiB);
	OK(cu(cuMemMap)(p, 2 * MiB, 0, first, 0));
	OK(cu(cuMemMap)(p + 2 * MiB, 2 * MiB, 0, second, 0));
	INVALID(cu(cuMemSetAccess)(p, 6 * MiB, &rw, 1));
	INVALID(cu(cuMemSetAccess)(p, 3 * MiB, &rw, 1));
	OK(cu(cuMemSetAccess)(p, 4 * MiB, &rw, 1));
	OK(cu(cuMemsetD32)(p, 7, MiB));
	MUST(word_at(p + 2 * MiB - 4) == 7 && word_at(p + 2 * MiB) == 7);
	INVALID(cu(cuMemsetD32)(p, 7, MiB + 1));
	OK(cu(cuMemUnmap)(p, 4 * MiB));
	OK(cu(cuMemAddressFree)(p, 6 * MiB));
	OK(cu(cuMemRelease)(first));
	OK(cu(cuMemRelease)(second));
}

SCENARIO(a_driver_call_does_not_write_through_a_read_only_mapping)
{
	CUmemAccessDesc none = access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
	CUmemGenericAllocationHandle handle;
	CUmemLocation gpu = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
	unsigned long long flags;
	unsigned int word = 1;
	CUdeviceptr p;

	start_driver(0);
	handle = vmm_new(2 * MiB);
	p = vmm_map(handle, 2 * MiB, CU_MEM_ACCESS_FLAGS_PROT_READ);
	MUST(word_at(p) == 0);
	INVALID(cu(cuMemsetD8)(p, 1, 4));
	INVALID(cu(cuMemcpyHtoD)(p, &word, 4));
	OK(cu(cuMemGetAccess)(&flags, &gpu, p));
	MUST(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
	MUST(*(volatile unsigned int *)p == 0);
	OK(cu(cuMemSetAccess)(p, 2 * MiB, &none, 1));
	INVALID(cu(cuMemcpyDtoH)(&word, p, 4));
	vmm_unmap(p, 2 * MiB);
	OK(cu(cuMemRelease)(handle));
}

SCENARIO(a_kernel_that_writes_through_a_read_only_mapping_dies, .signal = SIGSEGV)
{
	start_driver(0);
	*(volatile char *)vmm_map(vmm_new(2 * MiB), 2 * MiB, CU_MEM_ACCESS_FLAGS_PROT_READ) = 1;
}

SCENARIO(a_mapping_without_access_is_closed, .signal = SIGSEGV)
{
	CUmemGenericAllocationHandle handle;
	unsigned int word;
	CUdeviceptr p;

	start_driver(0);
	handle = vmm_new(2 * MiB);
	p = vmm_reserve(2 * MiB);
	OK(cu(cuMemMap)(p, 2 * MiB, 0, handle, 0));
	INVALID(cu(cuMemcpyDtoH)(&word, p, 4));
	word = *(volatile char *)p;
}

SCENARIO(host_memory_is_shareable_on_a_node_only)
{
	CUmemAllocationProp node = vmm_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
	CUmemAllocationProp host = vmm_prop(CU_MEM_LOCATION_TYPE_HOST, 0);
	CUmemAccessDesc both[] = { access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, RW),
				   access_for(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, RW) };
	CUmemGenericAllocationHandle handle, imported;
	unsigned int type;
	CUdeviceptr p;
	int fd;

	start_driver(0);
	INVALID(cu(cuMemCreate)(&handle, 2 * MiB, &host, 0));
	OK(cu(cuMemCreate)(&handle, 2 * MiB, &node, 0));
	fd = vmm_export(handle);
	imported = vmm_import(fd);
	close(fd);
	OK(cu(cuMemRelease)(handle));
	p = vmm_reserve(2 * MiB);
	OK(cu(cuMemMap)(p, 2 * MiB, 0, imported, 0));
	OK(cu(cuMemSetAccess)(p, 2 * MiB, both, 2));
	OK(cu(cuMemsetD8)(p, 9, 4));
	MUST(*(volatile unsigned char *)p == 9);
	OK(cu(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	MUST(type == CU_MEMORYTYPE_HOST);
	vmm_unmap(p, 2 * MiB);
	OK(cu(cuMemRelease)(imported));
}

/* Access for the device gives the CPU none; the driver's own copies still work. */
SCENARIO(the_cpu_needs_access_of_its_own_to_host_memory, .signal = SIGSEGV)
{
	CUmemAllocationProp node = vmm_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
	CUmemAccessDesc gpu = access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, RW);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemCreate)(&handle, 2 * MiB, &node, 0));
	p = vmm_reserve(2 * MiB);
	OK(cu(cuMemMap)(p, 2 * MiB, 0, handle, 0));
	OK(cu(cuMemSetAccess)(p, 2 * MiB, &gpu, 1));
	OK(cu(cuMemsetD8)(p, 9, 4));
	MUST(word_at(p) == 0x09090909);
	*(volatile char *)p = 1;
}

SCENARIO(a_peer_gpu_needs_access, .env = "FAKECUDA_DEVICES=2")
{
	CUmemAccessDesc second = access_for(CU_MEM_LOCATION_TYPE_DEVICE, 1, RW);
	CUmemAccessDesc host = access_for(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, RW);
	CUmemAccessDesc third = access_for(CU_MEM_LOCATION_TYPE_DEVICE, 2, RW);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	unsigned int word;
	int can;

	start_driver(1);
	OK(cu(cuDeviceCanAccessPeer)(&can, 1, 0));
	MUST(can);
	handle = vmm_new(2 * MiB);
	p = vmm_map(handle, 2 * MiB, RW);
	INVALID(cu(cuMemcpyDtoH)(&word, p, 4));
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cu(cuMemSetAccess)(p, 2 * MiB, &host, 1));
	INVALID(cu(cuMemSetAccess)(p, 2 * MiB, &third, 1));
	OK(cu(cuMemSetAccess)(p, 2 * MiB, &second, 1));
	MUST(word_at(p) == 0);
	vmm_unmap(p, 2 * MiB);
	OK(cu(cuMemRelease)(handle));
}

SCENARIO(a_map_into_unreserved_space_aborts, .signal = SIGABRT, .says = "not reserved")
{
	OK(cu(cuInit)(0));
	cu(cuMemMap)(vmm_reserve(2 * MiB) + 2 * MiB, 2 * MiB, 0, vmm_new(2 * MiB), 0);
}

SCENARIO(an_unmap_of_nothing_aborts, .signal = SIGABRT, .says = "not mapped")
{
	OK(cu(cuInit)(0));
	cu(cuMemUnmap)(vmm_reserve(2 * MiB), 2 * MiB);
}

SCENARIO(an_unmap_of_a_part_aborts, .signal = SIGABRT, .says = "not as a whole")
{
	OK(cu(cuInit)(0));
	cu(cuMemUnmap)(vmm_map(vmm_new(4 * MiB), 4 * MiB, RW), 2 * MiB);
}

SCENARIO(freeing_a_reservation_with_a_mapping_aborts, .signal = SIGABRT, .says = "is mapped there")
{
	OK(cu(cuInit)(0));
	cu(cuMemAddressFree)(vmm_map(vmm_new(2 * MiB), 2 * MiB, RW), 2 * MiB);
}

SCENARIO(freeing_a_part_of_a_reservation_aborts, .signal = SIGABRT, .says = "no reservation")
{
	OK(cu(cuInit)(0));
	cu(cuMemAddressFree)(vmm_reserve(4 * MiB), 2 * MiB);
}

SCENARIO(releasing_a_handle_twice_aborts, .signal = SIGABRT, .says = "cuMemRelease")
{
	CUmemGenericAllocationHandle handle;

	OK(cu(cuInit)(0));
	handle = vmm_new(2 * MiB);
	OK(cu(cuMemRelease)(handle));
	cu(cuMemRelease)(handle);
}

#define ALL(X)                                                      \
	X(memory_is_fresh_and_outlives_its_handle)                  \
	X(an_exported_fd_alone_keeps_the_contents)                  \
	X(an_imported_handle_is_not_exported_again)                 \
	X(a_foreign_fd_is_not_imported)                             \
	X(an_fd_of_ours_is_sealed)                                  \
	X(sizes_are_whole_steps_and_mappings_whole_handles)         \
	X(mappings_side_by_side_are_one_range)                      \
	X(a_driver_call_does_not_write_through_a_read_only_mapping) \
	X(a_kernel_that_writes_through_a_read_only_mapping_dies)    \
	X(a_mapping_without_access_is_closed)                       \
	X(host_memory_is_shareable_on_a_node_only)                  \
	X(the_cpu_needs_access_of_its_own_to_host_memory)           \
	X(a_peer_gpu_needs_access)                                  \
	X(a_map_into_unreserved_space_aborts)                       \
	X(an_unmap_of_nothing_aborts)                               \
	X(an_unmap_of_a_part_aborts)                                \
	X(freeing_a_reservation_with_a_mapping_aborts)              \
	X(freeing_a_part_of_a_reservation_aborts)                   \
	X(releasing_a_handle_twice_aborts)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY){ NULL, NULL } };

static void add(TCase *tests)
{
	ALL(SCENARIO_ADD)
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, "fakecuda vmm", add);
}
