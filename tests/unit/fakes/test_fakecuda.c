/* SPDX-License-Identifier: MIT
 *
 * The fake driver: the parts that every call uses (cuInit, fork, made failures, counters, log), its
 * devices and contexts, and the check for leaks at exit. test_fakecuda_*.c test its memory.
 */
#include "tests/fakecuda/words.h"

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

/* Two of three GPUs, the last first: their names stay, their numbers change. */
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

/* A release that is made to fail frees the memory all the same: the program must neither be
 * reported for a leak nor be killed for a second release. */
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
	X(visible_devices_keep_their_names)                      \
	X(a_machine_without_devices_says_so)                     \
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
	X(threads_do_not_tread_on_each_other)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY){ NULL, NULL } };

static void add(TCase *tests)
{
	ALL(SCENARIO_ADD)
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, "fakecuda", add);
}
