/* SPDX-License-Identifier: MIT
 *
 * The doctor's tests of the CUDA driver: it loads the driver, asks for each device's attributes
 * that our pools need, and makes one allocation of each kind, exports it as a file descriptor and
 * frees it. None of this makes a context, so it takes no memory of a GPU.
 */
#include "client/ctl/doctor.h"
#include "proto/base/cuda_table.h"
#include "proto/base/own.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
#define CUDA_CALLS(X) \
	X(cuInit) X(cuGetErrorName) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) \
	X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute) \
	X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemExportToShareableHandle) \
	X(cuMemRelease)
/* clang-format on */

static struct cuda {
	CUDA_CALLS(CUDA_MEMBER)
} cuda;

static const struct libcuda_symbol symbols[] = { CUDA_CALLS(CUDA_SYMBOL) };

static const char *error_name(CUresult result)
{
	const char *name;

	return cuda.cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : "an unknown error";
}

static bool load(struct doctor *d)
{
	char why[256];
	bool found = libcuda_load(NULL, 0, NULL, why, sizeof(why));

	if (found && libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why)))
		return true;
	doctor_say(
		d, found ? FINDING_FAIL : FINDING_WARN, "driver",
		found ? "install a driver of CUDA 12.2 or newer"
		      : "install the NVIDIA driver's libcuda, or start the container with --gpus "
			"all; host pools work without it",
		"%s", why);
	return false;
}

static bool start(struct doctor *d, int *ret_count)
{
	int version = 0;
	CUresult r = cuda.cuInit(0);

	if (r == CUDA_SUCCESS)
		r = cuda.cuDeviceGetCount(ret_count);
	if (r != CUDA_SUCCESS) {
		doctor_say(d, r == CUDA_ERROR_NO_DEVICE ? FINDING_WARN : FINDING_FAIL, "driver",
			   "run nvidia-smi for details; reboot after an update of the driver",
			   "cuInit: %s", error_name(r));
		return false;
	}
	cuda.cuDriverGetVersion(&version);
	doctor_ok(d, "driver", "CUDA %d.%d, devices: %d", version / 1000, version % 1000 / 10,
		  *ret_count);
	return true;
}

static int attribute(CUdevice device, CUdevice_attribute a)
{
	int value = 0;

	return cuda.cuDeviceGetAttribute(&value, a, device) == CUDA_SUCCESS ? value : 0;
}

/* Makes the smallest allocation at a place and exports it. NULL, or the name of the call that
 * failed. */
static const char *test_export(CUmemLocation place, CUresult *ret)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes =
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				     .location = place };
	CUmemGenericAllocationHandle handle;
	_cleanup_(close_fd) int fd = -1;
	size_t size = 0;

	*ret = cuda.cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (*ret != CUDA_SUCCESS)
		return "cuMemGetAllocationGranularity";
	*ret = cuda.cuMemCreate(&handle, size, &prop, 0);
	if (*ret != CUDA_SUCCESS)
		return "cuMemCreate";
	*ret = cuda.cuMemExportToShareableHandle(&fd, handle,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	cuda.cuMemRelease(handle);
	return *ret == CUDA_SUCCESS ? NULL : "cuMemExportToShareableHandle";
}

static void test_kind(struct doctor *d, const char *check, const char *kind, bool promised,
		      CUmemLocation place)
{
	const char *call;
	CUresult r;

	if (!promised) {
		doctor_warn(d, check, NULL, "no %s pool here: the device lacks the attribute",
			    kind);
		return;
	}
	call = test_export(place, &r);
	if (call)
		doctor_fail(
			d, check,
			r == CUDA_ERROR_OUT_OF_MEMORY
				? "its memory is full: nvidia-smi shows the processes that use it"
				: NULL,
			"%s: %s: %s", kind, call, error_name(r));
	else
		doctor_ok(d, check, "%s: memory can be made and exported as a file descriptor",
			  kind);
}

static void test_mempool(struct doctor *d, const char *check, CUdevice device)
{
	int pools = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
	int handles = attribute(device, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);

	if (pools && (handles & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		doctor_ok(d, check, "mempool: the device exports pools as file descriptors");
	else
		doctor_warn(d, check, "use a vmm pool",
			    "no mempool pool here: %s (handle types 0x%x)",
			    pools ? "the device's pools can't be exported" : "no memory pools",
			    (unsigned)handles);
}

/* What client/lib/map/order.c asks of a GPU. */
static void test_streams(struct doctor *d, const char *check, CUdevice device)
{
	const char *lacks =
		!attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
			? "64-bit stream memory operations"
		: !attribute(device, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)
			? "read-only access to host memory"
			: NULL;

	if (lacks)
		doctor_warn(d, check, "update the driver; streams in a host pool work",
			    "no streams of its memory: it has no %s", lacks);
	else
		doctor_ok(d, check, "streams: it can wait for other processes' GPUs");
}

static void check_sharing(struct doctor *d, const char *check, const char *name, CUdevice device)
{
	int mode = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);

	if (strstr(name, "MIG"))
		doctor_warn(d, check, NULL,
			    "a MIG instance: only processes of this instance can share its memory");
	if (mode == CU_COMPUTEMODE_PROHIBITED)
		doctor_fail(d, check, "nvidia-smi -c DEFAULT",
			    "its compute mode allows no process to use it");
	if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
		doctor_warn(d, check, "nvidia-smi -c DEFAULT, or run MPS",
			    "its compute mode allows only one process at a time to use it");
}

static void test_device(struct doctor *d, int ordinal)
{
	char name[96] = "?", check[24];
	size_t total = 0;
	CUdevice device;
	CUresult r = cuda.cuDeviceGet(&device, ordinal);
	int node;

	snprintf(check, sizeof(check), "cuda:%d", ordinal);
	if (r != CUDA_SUCCESS) {
		doctor_fail(d, check, NULL, "cuDeviceGet: %s", error_name(r));
		return;
	}
	cuda.cuDeviceGetName(name, sizeof(name), device);
	cuda.cuDeviceTotalMem(&total, device);
	doctor_ok(d, check, "%s, %s", name, ctl_size(d->ctl, total).text);
	check_sharing(d, check, name, device);
	test_kind(
		d, check, "vmm",
		attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
			attribute(device,
				  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
		(CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal });
	test_mempool(d, check, device);
	test_streams(d, check, device);
	/* -1: the machine has no NUMA; its memory is node 0. */
	node = attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
	test_kind(d, check, "pinned",
		  attribute(device,
			    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
		  (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
				   .id = node < 0 ? 0 : node });
}

/* As libcuda does: by default it looks in that folder. */
static bool uses_mps(void)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/control", folder ? folder : "/tmp/nvidia-mps");
	return access(path, F_OK) == 0;
}

static void test_parking(struct doctor *d)
{
	static const struct libcuda_symbol call = { "cuCheckpointProcessRestore", 0 };
	void *found;
	char why[256];

	if (libcuda_load(&call, 1, &found, why, sizeof(why)))
		doctor_ok(d, "park", "the driver can freeze processes: gpushmctl park");
	else
		doctor_warn(d, "park", "update the driver to 570 or newer", "%s", why);
}

void doctor_cuda(struct doctor *d)
{
	int count = 0;

	if (!load(d) || !start(d, &count))
		return;
	for (int i = 0; i < count; i++)
		test_device(d, i);
	test_parking(d);
	if (uses_mps())
		doctor_warn(d, "MPS", NULL,
			    "a process that is killed while it computes ends the GPU work of the "
			    "others, and its own may run on after its end, which the daemon cannot "
			    "see; start gpushmd outside MPS, as gpushm-operations(7) says");
}
