/* SPDX-License-Identifier: MIT
 *
 * The fake driver: what every call passes through (cuInit, fork, made failures, counters, log), its
 * devices and contexts, copies, registered host memory, and the check for leaks at exit. What it
 * does with vmm memory and pools is in test_fakecuda_vmm.c and test_fakecuda_mempool.c.
 */
#include "tests/fakecuda/scenario.h"

#include <pthread.h>

SCENARIO(a_call_before_cuinit_is_refused)
{
	CUmemGenericAllocationHandle handle;
	const char *name;
	int n;

	GIVES(CUDA_ERROR_NOT_INITIALIZED, cu(cuDeviceGetCount)(&n));
	GIVES(CUDA_ERROR_NOT_INITIALIZED, vmm_try(2 * MiB, &handle));
	OK(cu(cuDriverGetVersion)(&n));
	MUST(n >= 12000);
	OK(cu(cuGetErrorName)(CUDA_ERROR_OUT_OF_MEMORY, &name));
	MUST(!strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY"));
	INVALID(cu(cuGetErrorName)(12345, &name));
	INVALID(cu(cuInit)(1));
	OK(cu(cuInit)(0));
	OK(cu(cuDeviceGetCount)(&n));
	MUST(n == 1);
}

static void in_forked_child(void (*check)(void))
{
	pid_t pid = fork();

	if (!pid) {
		check();
		exit(0);
	}
	scenario_finish(pid);
}

static void nothing_works(void)
{
	int n;

	GIVES(CUDA_ERROR_NOT_INITIALIZED, cu(cuInit)(0));
	GIVES(CUDA_ERROR_NOT_INITIALIZED, cu(cuDeviceGetCount)(&n));
}

static void all_works(void)
{
	OK(cu(cuInit)(0));
	OK(cu(cuMemRelease)(vmm_new(2 * MiB)));
}

SCENARIO(a_forked_child_has_no_driver, .env = "FAKECUDA_STRICT=1")
{
	CUmemGenericAllocationHandle handle;

	OK(cu(cuInit)(0));
	handle = vmm_new(2 * MiB);
	in_forked_child(nothing_works);
	OK(cu(cuMemRelease)(handle));
}

SCENARIO(a_child_forked_before_cuinit_has_its_own_driver)
{
	int version;

	OK(cu(cuDriverGetVersion)(&version));
	in_forked_child(all_works);
	all_works();
}

SCENARIO(a_machine_without_devices_says_so, .env = "FAKECUDA_DEVICES=0")
{
	GIVES(CUDA_ERROR_NO_DEVICE, cu(cuInit)(0));
}

/* Two of three GPUs, the last first: what they are called stays, what they are numbered does not.
 */
SCENARIO(
	visible_devices_keep_their_names,
	.env = "FAKECUDA_DEVICES=3 CUDA_VISIBLE_DEVICES=2,GPU-fa4ec0da-0000-4000-8000-000000000000,"
	       "9,1")
{
	CUuuid first, second;
	char pci[16];
	int n, bus;

	OK(cu(cuInit)(0));
	OK(cu(cuDeviceGetCount)(&n));
	MUST(n == 2);
	OK(cu(cuDeviceGetUuid)(&first, 0));
	OK(cu(cuDeviceGetUuid)(&second, 1));
	MUST(first.bytes[15] == 2 && second.bytes[15] == 0);
	MUST(!memcmp(first.bytes, second.bytes, 15));
	OK(cu(cuDeviceGetPCIBusId)(pci, sizeof(pci), 0));
	OK(cu(cuDeviceGetAttribute)(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
	MUST((int)strtol(pci + 5, NULL, 16) == bus);
	GIVES(CUDA_ERROR_INVALID_DEVICE, cu(cuDeviceGetUuid)(&first, 2));
}

SCENARIO(work_without_a_context_is_refused)
{
	CUcontext context, same;
	CUdeviceptr p;
	unsigned int word, flags;
	CUstream stream;
	int active;

	OK(cu(cuInit)(0));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuMemAlloc)(&p, 1));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuMemcpyDtoH)(&word, 4096, 4));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuStreamCreate)(&stream, 0));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuStreamSynchronize)(NULL));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuCtxSynchronize)());
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuDevicePrimaryCtxRelease)(0));
	OK(cu(cuDevicePrimaryCtxRetain)(&context, 0));
	OK(cu(cuCtxSetCurrent)(context));
	OK(cu(cuCtxSynchronize)());
	OK(cu(cuDevicePrimaryCtxGetState)(0, &flags, &active));
	MUST(active);
	OK(cu(cuDevicePrimaryCtxRelease)(0));
	GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu(cuMemAlloc)(&p, 1));
	OK(cu(cuCtxGetCurrent)(&same));
	MUST(same == context);
}

SCENARIO(contexts_are_a_stack, .env = "FAKECUDA_DEVICES=2")
{
	CUcontext first = start_driver(0), second, popped;
	CUdevice device;

	OK(cu(cuCtxCreate)(&second, NULL, 0, 1));
	OK(cu(cuCtxGetDevice)(&device));
	MUST(device == 1);
	OK(cu(cuCtxPopCurrent)(&popped));
	MUST(popped == second);
	OK(cu(cuCtxGetDevice)(&device));
	MUST(device == 0);
	OK(cu(cuCtxDestroy)(second));
	OK(cu(cuCtxPopCurrent)(&popped));
	MUST(popped == first);
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuCtxPopCurrent)(&popped));
}

SCENARIO(the_nth_call_fails_and_no_other, .env = "FAKECUDA_FAIL=3")
{
	const char *name;
	int n;

	OK(cu(cuInit)(0));
	OK(cu(cuGetErrorName)(CUDA_SUCCESS, &name));
	OK(cu(cuDeviceGetCount)(&n));
	GIVES(CUDA_ERROR_UNKNOWN, cu(cuDeviceGetCount)(&n));
	OK(cu(cuDeviceGetCount)(&n));
	fake(fakecuda_reset_fail)(1);
	GIVES(CUDA_ERROR_UNKNOWN, cu(cuDeviceGetCount)(&n));
	OK(cu(cuDeviceGetCount)(&n));
}

SCENARIO(a_named_call_fails_as_told, .env = "FAKECUDA_FAIL=2:cuMemCreate FAKECUDA_FAIL_WITH=2")
{
	CUmemGenericAllocationHandle handle;

	OK(cu(cuInit)(0));
	OK(cu(cuMemRelease)(vmm_new(2 * MiB)));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &handle));
	OK(cu(cuMemRelease)(vmm_new(2 * MiB)));
}

/* A room that is told of a failed release must not be called leaky for it, nor killed for a retry.
 */
SCENARIO(a_give_back_that_is_made_to_fail_gives_back,
	 .env = "FAKECUDA_FAIL=1:cuMemRelease FAKECUDA_STRICT=1")
{
	CUmemGenericAllocationHandle handle;

	OK(cu(cuInit)(0));
	handle = vmm_new(2 * MiB);
	GIVES(CUDA_ERROR_UNKNOWN, cu(cuMemRelease)(handle));
	MUST(fake(fakecuda_handed_out)() == 0);
	INVALID(cu(cuMemRelease)(handle));
}

SCENARIO(calls_are_counted_under_both_names)
{
	size_t bytes;
	int n;

	MUST(fake(fakecuda_calls)(NULL) == 0);
	OK(cu(cuInit)(0));
	OK(cu(cuDeviceTotalMem)(&bytes, 0));
	OK(cu(cuDeviceGetCount)(&n));
	MUST(bytes == 8192 * MiB);
	MUST(fake(fakecuda_calls)("cuDeviceTotalMem") == 1);
	MUST(fake(fakecuda_calls)("cuDeviceTotalMem_v2") == 1);
	MUST(fake(fakecuda_calls)("cuMemCreate") == 0);
	MUST(fake(fakecuda_calls)(NULL) == 3);
}

SCENARIO(the_log_has_a_line_for_each_call)
{
	char path[] = "/tmp/fakecuda-log-XXXXXX", want[64], line[128];
	int made = mkstemp(path), n;
	FILE *log;

	MUST(made >= 0);
	setenv("FAKECUDA_LOG", path, 1);
	GIVES(CUDA_ERROR_NOT_INITIALIZED, cu(cuDeviceGetCount)(&n));
	OK(cu(cuInit)(0));
	log = fdopen(made, "r");
	MUST(log && fgets(line, sizeof(line), log));
	snprintf(want, sizeof(want), "%d cuDeviceGetCount CUDA_ERROR_NOT_INITIALIZED\n", getpid());
	MUST(!strcmp(line, want));
	MUST(fgets(line, sizeof(line), log) && strstr(line, " cuInit CUDA_SUCCESS\n"));
	MUST(!fgets(line, sizeof(line), log));
	fclose(log);
	unlink(path);
}

SCENARIO(a_leaked_handle_fails_the_process, .env = "FAKECUDA_STRICT=1",
	 .status = FAKECUDA_LEAKED_STATUS, .says = "leaked 1 allocation handles")
{
	CUmemAllocationProp prop = vmm_prop(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	CUmemGenericAllocationHandle handle;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	OK(cu(cuInit)(0));
	OK(cu(cuMemCreate)(&handle, 2 * MiB, &prop, 0));
	MUST(fake(fakecuda_handed_out)() == 1);
}

SCENARIO(a_leaked_fd_fails_the_process, .env = "FAKECUDA_STRICT=1",
	 .status = FAKECUDA_LEAKED_STATUS, .says = "leaked fd")
{
	CUmemGenericAllocationHandle handle;
	int fd;

	OK(cu(cuInit)(0));
	handle = vmm_new(2 * MiB);
	fd = vmm_export(handle);
	OK(cu(cuMemRelease)(handle));
	MUST(fd >= 0);
	exit(0);
}

SCENARIO(a_leaked_context_fails_the_process, .env = "FAKECUDA_STRICT=1",
	 .status = FAKECUDA_LEAKED_STATUS, .says = "leaked 1 retained contexts")
{
	start_driver(0);
}

SCENARIO(a_process_that_gives_all_back_passes_the_strict_check, .env = "FAKECUDA_STRICT=1")
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	start_driver(0);
	handle = vmm_new(2 * MiB);
	p = vmm_map(handle, 2 * MiB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cu(cuMemRelease)(handle));
	vmm_unmap(p, 2 * MiB);
	OK(cu(cuDevicePrimaryCtxRelease)(0));
}

SCENARIO(proc_address_gives_the_newest_version)
{
	CUdriverProcAddressQueryResult status;
	void *function;

	OK(cu(cuGetProcAddress)("cuMemFree", &function, 12000, 0, &status));
	MUST(function == scenario_symbol("cuMemFree_v2"));
	MUST(status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cu(cuGetProcAddress)("cuNothing", &function, 12000, 0, &status));
	MUST(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	GIVES(CUDA_ERROR_NOT_FOUND, cu(cuGetProcAddress)("cuNothing", &function, 12000, 0, NULL));
	MUST(scenario_symbol("cuDeviceGetUuid") && scenario_symbol("cuMemHostRegister"));
	MUST(scenario_symbol("cuDevicePrimaryCtxRelease"));
}

SCENARIO(a_copy_is_checked_to_the_byte)
{
	char host[64] = "what a host has";
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 10));
	OK(cu(cuMemcpyHtoD)(p, host, 10));
	INVALID(cu(cuMemcpyHtoD)(p, host, 11));
	INVALID(cu(cuMemcpyDtoH)(host, p + 1, 10));
	INVALID(cu(cuMemsetD8)(p + 9, 0, 2));
	INVALID(cu(cuMemcpyDtoH)(host, (CUdeviceptr)host, 8));
	INVALID(cu(cuMemsetD32)(p + 1, 0, 1));
	OK(cu(cuMemcpy)((CUdeviceptr)(host + 32), p, 10));
	MUST(!memcmp(host, host + 32, 10));
	OK(cu(cuMemsetD8)(p + 1, 'x', 2));
	OK(cu(cuMemcpyDtoH)(host, p, 10));
	MUST(!memcmp(host, "wxxt a hos", 10));
	OK(cu(cuMemFree)(p));
	INVALID(cu(cuMemcpyDtoH)(host, p, 1));
}

/* A 3x2 corner of a 4x4 device matrix, into a dense host one and back to another place. */
SCENARIO(a_strided_copy_moves_the_box_and_nothing_else)
{
	CUDA_MEMCPY2D c = { .WidthInBytes = 3, .Height = 2 };
	char matrix[17] = "abcdefghijklmnop", box[7] = { 0 };
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 16));
	OK(cu(cuMemcpyHtoD)(p, matrix, 16));
	c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	c.srcDevice = p;
	c.srcXInBytes = c.srcY = 1;
	c.srcPitch = 4;
	c.dstMemoryType = CU_MEMORYTYPE_HOST;
	c.dstHost = box;
	OK(cu(cuMemcpy2D)(&c));
	MUST(!strcmp(box, "fghjkl"));
	c.srcPitch = 3;
	INVALID(cu(cuMemcpy2D)(&c));

	c = (CUDA_MEMCPY2D){ .WidthInBytes = 3, .Height = 2, .dstPitch = 4, .dstDevice = p };
	c.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
	c.srcDevice = (CUdeviceptr)box;
	c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	c.dstY = 2;
	OK(cu(cuMemcpy2DAsync)(&c, NULL));
	OK(cu(cuMemcpyDtoH)(matrix, p, 16));
	MUST(!strcmp(matrix, "abcdefghfghljklp"));
	c.dstY = 3;
	INVALID(cu(cuMemcpy2D)(&c));
	OK(cu(cuMemFree)(p));
}

SCENARIO(a_box_of_slices_is_copied_slice_by_slice)
{
	CUDA_MEMCPY3D c = { .WidthInBytes = 2, .Height = 1, .Depth = 2 };
	char from[9] = "abcdefgh", to[5] = { 0 };
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 8));
	OK(cu(cuMemcpyHtoD)(p, from, 8));
	c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	c.srcDevice = p;
	c.srcPitch = 2;
	c.srcHeight = 2;
	c.dstMemoryType = CU_MEMORYTYPE_HOST;
	c.dstHost = to;
	OK(cu(cuMemcpy3D)(&c));
	MUST(!strcmp(to, "abef"));
	OK(cu(cuMemFree)(p));
}

SCENARIO(a_destroyed_stream_aborts, .signal = SIGABRT, .says = "is no stream")
{
	CUstream stream;
	CUevent event;

	start_driver(0);
	OK(cu(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(cu(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	OK(cu(cuEventRecord)(event, stream));
	OK(cu(cuStreamSynchronize)(stream));
	OK(cu(cuStreamQuery)(stream));
	OK(cu(cuEventSynchronize)(event));
	OK(cu(cuEventDestroy)(event));
	OK(cu(cuStreamDestroy)(stream));
	cu(cuStreamSynchronize)(stream);
}

SCENARIO(read_only_pages_are_registered_only_as_such)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	CUdeviceptr p;
	void *read_only;

	start_driver(0);
	MUST(ftruncate(fd, 8192) == 0);
	read_only = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	INVALID(cu(cuMemHostRegister)(read_only, 8192, 0));
	OK(cu(cuMemHostRegister)(read_only, 8192, CU_MEMHOSTREGISTER_READ_ONLY));
	GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
	      cu(cuMemHostRegister)((char *)read_only + 4096, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
	OK(cu(cuMemHostGetDevicePointer)(&p, read_only, 0));
	MUST(p == (CUdeviceptr)read_only && word_at(p) == 0);
	INVALID(cu(cuMemsetD8)(p, 1, 1));
	INVALID(cu(cuMemHostUnregister)((char *)read_only + 4096));
	OK(cu(cuMemHostUnregister)(read_only));
	GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu(cuMemHostUnregister)(read_only));
	munmap(read_only, 8192);
	close(fd);
}

SCENARIO(a_pointer_tells_what_it_is, .env = "FAKECUDA_DEVICES=2")
{
	unsigned int type;
	CUdeviceptr p;
	int ordinal;

	start_driver(1);
	OK(cu(cuMemAlloc)(&p, 64));
	OK(cu(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 63));
	MUST(type == CU_MEMORYTYPE_DEVICE);
	OK(cu(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	MUST(ordinal == 1);
	INVALID(cu(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					  (CUdeviceptr)&type));
	OK(cu(cuMemFree)(p));
}

SCENARIO(a_second_free_aborts, .signal = SIGABRT, .says = "not allocated")
{
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 64));
	OK(cu(cuMemFree)(p));
	cu(cuMemFree)(p);
}

static void *churn(void *context)
{
	OK(cu(cuCtxSetCurrent)(context));
	for (int i = 0; i < 200; i++) {
		CUmemGenericAllocationHandle handle = vmm_new(2 * MiB);
		CUdeviceptr p = vmm_map(handle, 2 * MiB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

		OK(cu(cuMemsetD32)(p, (unsigned int)i, 4));
		MUST(word_at(p + 12) == (unsigned int)i);
		vmm_unmap(p, 2 * MiB);
		OK(cu(cuMemRelease)(handle));
	}
	return NULL;
}

SCENARIO(threads_do_not_tread_on_each_other)
{
	CUcontext context = start_driver(0);
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		MUST(pthread_create(&threads[i], NULL, churn, context) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	MUST(fake(fakecuda_handed_out)() == 0);
}

#define ALL(X)                                                   \
	X(a_call_before_cuinit_is_refused)                       \
	X(a_forked_child_has_no_driver)                          \
	X(a_child_forked_before_cuinit_has_its_own_driver)       \
	X(a_machine_without_devices_says_so)                     \
	X(visible_devices_keep_their_names)                      \
	X(work_without_a_context_is_refused)                     \
	X(contexts_are_a_stack)                                  \
	X(the_nth_call_fails_and_no_other)                       \
	X(a_named_call_fails_as_told)                            \
	X(a_give_back_that_is_made_to_fail_gives_back)           \
	X(calls_are_counted_under_both_names)                    \
	X(the_log_has_a_line_for_each_call)                      \
	X(a_leaked_handle_fails_the_process)                     \
	X(a_leaked_fd_fails_the_process)                         \
	X(a_leaked_context_fails_the_process)                    \
	X(a_process_that_gives_all_back_passes_the_strict_check) \
	X(proc_address_gives_the_newest_version)                 \
	X(a_copy_is_checked_to_the_byte)                         \
	X(a_strided_copy_moves_the_box_and_nothing_else)         \
	X(a_box_of_slices_is_copied_slice_by_slice)              \
	X(a_destroyed_stream_aborts)                             \
	X(read_only_pages_are_registered_only_as_such)           \
	X(a_pointer_tells_what_it_is)                            \
	X(a_second_free_aborts)                                  \
	X(threads_do_not_tread_on_each_other)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY){ NULL, NULL } };

static Suite *suite(void)
{
	Suite *s = suite_create("fakecuda");
	TCase *tests = tcase_create("calls, devices, copies");

	ALL(SCENARIO_ADD)
	tcase_set_timeout(tests, 60);
	suite_add_tcase(s, tests);
	return s;
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, suite);
}
