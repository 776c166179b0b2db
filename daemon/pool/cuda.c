/* SPDX-License-Identifier: MIT
 *
 * The daemon's driver table, and how a driver's error becomes one of ours.
 *
 * The library is opened once and stays open until the process ends. The types of struct cuda are
 * those of the versions that the symbols are named with. No call is made from here: cuInit belongs
 * to device.c.
 */
#include "daemon/pool/cuda.h"

#include "daemon/util/log.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static const struct libcuda_symbol symbols[] = {
	{ "cuInit", offsetof(struct cuda, init) },
	{ "cuGetErrorName", offsetof(struct cuda, get_error_name) },
	{ "cuDriverGetVersion", offsetof(struct cuda, driver_get_version) },
	{ "cuDeviceGetCount", offsetof(struct cuda, device_get_count) },
	{ "cuDeviceGet", offsetof(struct cuda, device_get) },
	{ "cuDeviceGetName", offsetof(struct cuda, device_get_name) },
	{ "cuDeviceGetUuid_v2", offsetof(struct cuda, device_get_uuid) },
	{ "cuDeviceGetPCIBusId", offsetof(struct cuda, device_get_pci_bus_id) },
	{ "cuDeviceTotalMem_v2", offsetof(struct cuda, device_total_mem) },
	{ "cuDeviceGetAttribute", offsetof(struct cuda, device_get_attribute) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct cuda, primary_ctx_retain) },
	{ "cuDevicePrimaryCtxRelease_v2", offsetof(struct cuda, primary_ctx_release) },
	{ "cuCtxSetCurrent", offsetof(struct cuda, ctx_set_current) },
	{ "cuMemGetInfo_v2", offsetof(struct cuda, mem_get_info) },
	{ "cuMemGetAllocationGranularity", offsetof(struct cuda, mem_get_allocation_granularity) },
	{ "cuMemCreate", offsetof(struct cuda, mem_create) },
	{ "cuMemRelease", offsetof(struct cuda, mem_release) },
	{ "cuMemImportFromShareableHandle", offsetof(struct cuda, mem_import) },
	{ "cuMemExportToShareableHandle", offsetof(struct cuda, mem_export) },
	{ "cuMemPoolCreate", offsetof(struct cuda, mempool_create) },
	{ "cuMemPoolDestroy", offsetof(struct cuda, mempool_destroy) },
	{ "cuMemPoolTrimTo", offsetof(struct cuda, mempool_trim) },
	{ "cuMemPoolSetAttribute", offsetof(struct cuda, mempool_set_attribute) },
	{ "cuMemPoolExportToShareableHandle", offsetof(struct cuda, mempool_export) },
	{ "cuMemPoolImportFromShareableHandle", offsetof(struct cuda, mempool_import) },
	{ "cuMemPoolExportPointer", offsetof(struct cuda, mempool_export_pointer) },
	{ "cuMemAllocFromPoolAsync", offsetof(struct cuda, mempool_alloc_async) },
	{ "cuMemFreeAsync", offsetof(struct cuda, mem_free_async) },
	{ "cuMemsetD8Async", offsetof(struct cuda, memset_d8_async) },
	{ "cuStreamCreate", offsetof(struct cuda, stream_create) },
	{ "cuStreamDestroy_v2", offsetof(struct cuda, stream_destroy) },
	{ "cuStreamSynchronize", offsetof(struct cuda, stream_synchronize) },
};
_Static_assert(array_size(symbols) * sizeof(void *) == sizeof(struct cuda), "a symbol is missing");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda table;
static bool loaded;
static char why_not[256];

static void load(void)
{
	loaded = libcuda_load(symbols, array_size(symbols), &table, why_not, sizeof(why_not));
}

const struct cuda *cuda_load(char *why, size_t size)
{
	pthread_once(&once, load);
	if (!loaded)
		snprintf(why, size, "%s", why_not);
	return loaded ? &table : NULL;
}

static const char *error_name(CUresult result)
{
	const char *name = NULL;

	/* The driver leaves name alone for a number that it does not know. */
	if (loaded)
		table.get_error_name(result, &name);
	return name ? name : "an error that the driver has no name for";
}

/* Results after which the device, or this process's hold on it, does not come back: of most of them
 * cuda.h says that the process must be ended. Not among them: DEVICE_UNAVAILABLE, which is
 * another process's exclusive use and passes; UNKNOWN, which an fd of the wrong sort gives as well
 * (driver 580) and which says nothing of the device however often it comes. What fails again after
 * one of these is answered with the driver's error each time. */
static bool is_lost(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_SYSTEM_NOT_READY:
		return true;
	default:
		return false;
	}
}

int cuda_fault(struct fault *f, const char *call, CUresult result)
{
	enum code code = is_lost(result) ? CODE_POOL_FAILED : CODE_DRIVER;

	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		code = CODE_POOL_FULL;
	return fault(f, code, "%s: %s", call, error_name(result));
}

/* No documentation says what a handle gets whose GPU was reset. These are what the driver says of a
 * handle that is none, and of one whose device it does not have (driver 580); memory that has run
 * out, or a driver that is not there, is none of them. */
bool cuda_refuses_handle(CUresult result)
{
	return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
	       result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_SUPPORTED ||
	       result == CUDA_ERROR_UNKNOWN;
}

void cuda_undone(const char *call, CUresult result)
{
	if (result != CUDA_SUCCESS)
		log_warning("%s: %s, while cleaning up; going on without it", call,
			    error_name(result));
}
