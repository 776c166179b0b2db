/* SPDX-License-Identifier: MIT
 *
 * The client's driver table. The library is opened when the first GPU buffer is, so that a process
 * which uses host pools alone never pays for it, and is never closed.
 *
 * CUDA does not survive a fork (CUDA C Programming Guide, "Multi-process": a child must not use
 * what its parent initialised): in the child of a process that had started it here, every need for
 * it is refused with that reason.
 */
#include "client/map/cuda.h"

#include "client/base/error.h"
#include "client/base/process.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <stdbool.h>
#include <stddef.h>

static const struct libcuda_symbol symbols[] = {
	{ "cuInit", offsetof(struct cuda, init) },
	{ "cuGetErrorName", offsetof(struct cuda, get_error_name) },
	{ "cuDeviceGetCount", offsetof(struct cuda, device_get_count) },
	{ "cuDeviceGet", offsetof(struct cuda, device_get) },
	{ "cuDeviceGetUuid_v2", offsetof(struct cuda, device_get_uuid) },
	{ "cuDeviceTotalMem_v2", offsetof(struct cuda, device_total_mem) },
	{ "cuDeviceCanAccessPeer", offsetof(struct cuda, device_can_access_peer) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct cuda, primary_ctx_retain) },
	{ "cuDevicePrimaryCtxRelease_v2", offsetof(struct cuda, primary_ctx_release) },
	{ "cuDevicePrimaryCtxGetState", offsetof(struct cuda, primary_ctx_get_state) },
	{ "cuCtxGetCurrent", offsetof(struct cuda, ctx_get_current) },
	{ "cuCtxGetDevice", offsetof(struct cuda, ctx_get_device) },
	{ "cuCtxPushCurrent_v2", offsetof(struct cuda, ctx_push_current) },
	{ "cuCtxPopCurrent_v2", offsetof(struct cuda, ctx_pop_current) },
	{ "cuCtxSynchronize", offsetof(struct cuda, ctx_synchronize) },
	{ "cuMemAddressReserve", offsetof(struct cuda, mem_address_reserve) },
	{ "cuMemAddressFree", offsetof(struct cuda, mem_address_free) },
	{ "cuMemImportFromShareableHandle", offsetof(struct cuda, mem_import) },
	{ "cuMemRelease", offsetof(struct cuda, mem_release) },
	{ "cuMemMap", offsetof(struct cuda, mem_map) },
	{ "cuMemUnmap", offsetof(struct cuda, mem_unmap) },
	{ "cuMemSetAccess", offsetof(struct cuda, mem_set_access) },
	{ "cuMemPoolImportFromShareableHandle", offsetof(struct cuda, mempool_import) },
	{ "cuMemPoolSetAccess", offsetof(struct cuda, mempool_set_access) },
	{ "cuMemPoolDestroy", offsetof(struct cuda, mempool_destroy) },
	{ "cuMemPoolImportPointer", offsetof(struct cuda, mempool_import_pointer) },
	{ "cuMemFreeAsync", offsetof(struct cuda, mem_free_async) },
	{ "cuStreamSynchronize", offsetof(struct cuda, stream_synchronize) },
	{ "cuMemcpyHtoDAsync_v2", offsetof(struct cuda, memcpy_htod_async) },
	{ "cuMemcpyDtoHAsync_v2", offsetof(struct cuda, memcpy_dtoh_async) },
	{ "cuMemcpy2DAsync_v2", offsetof(struct cuda, memcpy_2d_async) },
};
_Static_assert(array_size(symbols) * sizeof(void *) == sizeof(struct cuda), "a symbol is missing");

static struct cuda table;	    /* under state::cuda_lock until it is loaded */
static bool loaded;		    /* likewise */
static _Atomic uint64_t started_in; /* state_generation() of the process that called cuInit; 0 */

static int load(void)
{
	char why[256];

	loaded = libcuda_load(symbols, array_size(symbols), &table, why, sizeof(why));
	return loaded ? 0 : error_set(ENODEV, "%s", why);
}

static int start(uint64_t generation)
{
	CUresult result;
	int r = loaded ? 0 : load();

	if (r < 0)
		return r;
	result = table.init(0);
	if (result != CUDA_SUCCESS) {
		cuda_failed("cuInit", result);
		return -ENODEV;
	}
	started_in = generation;
	return 0;
}

int cuda_start(const struct cuda **ret)
{
	struct state *s = state();
	uint64_t generation = state_generation();
	int r = 0;

	if (generation == 0)
		return error_set(ENOMEM, "out of memory for the driver");
	if (started_in != generation) {
		if (started_in != 0)
			return error_set(ENODEV, "CUDA was started before fork() and can't be used "
						 "in the child: fork first, or exec");
		pthread_mutex_lock(&s->cuda_lock);
		r = started_in == generation ? 0 : start(generation);
		pthread_mutex_unlock(&s->cuda_lock);
	}
	if (r == 0)
		*ret = &table;
	return r;
}

int cuda_failed(const char *call, CUresult result)
{
	const char *name = NULL;
	int number = EIO;

	/* The driver leaves name alone for a number that it does not know. */
	table.get_error_name(result, &name);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		number = ENOMEM;
	if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_INVALID_DEVICE ||
	    result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEVICE_UNAVAILABLE)
		number = ENODEV;
	return error_set(number, "%s: %s", call,
			 name ? name : "an error that the driver has no name for");
}
