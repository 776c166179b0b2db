/* SPDX-License-Identifier: MIT
 *
 * What a build with the CUDA Toolkit has: the daemon's driver table, the daemon's error for each of
 * the driver's, the search for GPUs, and the kinds of pools. nocuda.c replaces this file in other
 * builds.
 *
 * The library is opened once and stays open until the process ends.
 *
 * The search makes no context: its questions need none, and one takes 523 MiB of the GPU (measured
 * on an H200, driver 580). A mempool retains the primary context later. A GPU that can't be asked
 * is left out and logged; the others work.
 */
#include "daemon/pool/cuda.h"

#include "daemon/pool/pool_internal.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/facts.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

_Static_assert(UUID_BYTES == sizeof(CUuuid), "a UUID on the wire is CUDA's");

const struct pool_ops *const pool_kinds[] = { ALL_KINDS(OPS_OF) NULL };

/* ---- the driver table ---- */

static const struct libcuda_symbol symbols[] = { CUDA_CALLS(CUDA_SYMBOL) };

struct cuda cuda_driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static char why_not[256];

static void load(void)
{
	loaded = libcuda_load(symbols, array_size(symbols), &cuda_driver, why_not, sizeof(why_not));
}

bool cuda_load(char *why, size_t size)
{
	pthread_once(&once, load);
	if (!loaded)
		snprintf(why, size, "%s", why_not);
	return loaded;
}

/* ---- counting ---- */

static struct {
	_Atomic uint64_t count, failed, ns;
} counts[CUDA_COUNT];
_Static_assert(CUDA_COUNT <= DRIVER_CALLS_MAX, "driver_calls() returns all calls");

void cuda_count(enum cuda_index call, CUresult result, uint64_t ns)
{
	atomic_fetch_add_explicit(&counts[call].count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&counts[call].ns, ns, memory_order_relaxed);
	if (result != CUDA_SUCCESS)
		atomic_fetch_add_explicit(&counts[call].failed, 1, memory_order_relaxed);
}

/* The length of the function's name, without the version that its symbol may have. */
static int name_length(enum cuda_index call)
{
	const char *name = symbols[call].name, *version = strstr(name, "_v");

	return version ? (int)(version - name) : (int)strlen(name);
}

size_t driver_calls(struct driver_call ret[DRIVER_CALLS_MAX])
{
	size_t n = 0;

	for (enum cuda_index i = 0; i < CUDA_COUNT; i++) {
		struct driver_call call = { .count = counts[i].count,
					    .failed = counts[i].failed,
					    .ns = counts[i].ns };

		if (call.count == 0)
			continue;
		memcpy(call.name, symbols[i].name, (size_t)name_length(i));
		ret[n++] = call;
	}
	return n;
}

/* ---- errors ---- */

/* "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY" */
struct call_error {
	char text[128];
};

static struct call_error error_of(enum cuda_index call, CUresult result)
{
	struct call_error e;

	snprintf(e.text, sizeof(e.text), "%.*s: %s", name_length(call), symbols[call].name,
		 cuda_error_name(cuda_driver.cuGetErrorName, result));
	return e;
}

/* Results after which the device does not come back for this process: for most of them cuda.h says
 * that the process must be ended. Two are missing on purpose. DEVICE_UNAVAILABLE means that another
 * process uses the device exclusively, and passes. UNKNOWN also comes for an fd of the wrong kind
 * (driver 580), and says nothing of the device however often it comes. */
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

int cuda_fault(struct fault *f, enum cuda_index call, CUresult result)
{
	enum code code = is_lost(result) ? CODE_POOL_FAILED : CODE_DRIVER;

	if (result == CUDA_SUCCESS)
		return 0;
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		code = CODE_POOL_FULL;
	return fault(f, code, "%s", error_of(call, result).text);
}

/* No documentation tells the result for a handle whose GPU was reset. The driver returns these for
 * an invalid handle, and for one of a device that it does not have (driver 580); it returns others
 * when memory runs out or the driver is missing. */
bool cuda_refuses_handle(CUresult result)
{
	return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
	       result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_SUPPORTED ||
	       result == CUDA_ERROR_UNKNOWN;
}

int cuda_fault_kept(struct fault *f, enum pool_kind kind, enum cuda_index call, CUresult result)
{
	static const struct fact facts[] = { FACTS(FACT_ROW) };
	const struct fact *kept = &facts[FACT_kept];

	if (!cuda_refuses_handle(result))
		return cuda_fault(f, call, result);
	return fault(f, CODE_DRIVER,
		     "%s-%s does not hold with this driver: %s (%s); gpushmctl doctor "
		     "--driver says more",
		     kind_word(kind), kept->name, kept->holds, error_of(call, result).text);
}

void cuda_undone(enum cuda_index call, CUresult result)
{
	if (result != CUDA_SUCCESS)
		log_warning("%s, while cleaning up; going on without it",
			    error_of(call, result).text);
}

/* ---- GPUs ---- */

/* An error is no failure: a driver before CUDA 12.2 has no such attribute. */
static int probe_numa_node(CUdevice handle)
{
	int node = -1;

	if (cuda_call(cuDeviceGetAttribute, &node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, handle))
		return -1;
	return node;
}

static int probe_one(int ordinal, struct device *ret, struct fault *f)
{
	struct device d = { .ordinal = ordinal };
	CUdevice handle = 0;
	CUuuid uuid;
	size_t bytes;
	int err = cuda_try(f, cuDeviceGet, &handle, ordinal);

	err = err ?: cuda_try(f, cuDeviceGetUuid_v2, &uuid, handle);
	err = err ?: cuda_try(f, cuDeviceGetName, d.name, sizeof(d.name), handle);
	err = err ?: cuda_try(f, cuDeviceGetPCIBusId, d.pci_id, sizeof(d.pci_id), handle);
	err = err ?: cuda_try(f, cuDeviceTotalMem, &bytes, handle);
	if (err < 0)
		return err;

	memcpy(d.uuid, uuid.bytes, sizeof(d.uuid));
	for (char *c = d.pci_id; *c; c++)
		*c = tolower((unsigned char)*c); /* as lspci and sysfs write it */
	d.bytes = bytes;
	d.numa_node = probe_numa_node(handle);
	*ret = d;
	return 0;
}

static void probe_all(struct devices *d, int count)
{
	struct fault f;

	d->items = calloc(count, sizeof(*d->items));
	if (!d->items) {
		snprintf(d->why_none, sizeof(d->why_none), "out of memory");
		return;
	}

	for (int i = 0; i < count; i++) {
		if (probe_one(i, &d->items[d->n], &f) == 0) {
			list_init(&d->items[d->n].pools);
			d->n++;
			continue;
		}
		log_error_id(LOG_ID_NO_GPU, "GPU %d is left out: %s", i, f.text);
		snprintf(d->why_none, sizeof(d->why_none), "GPU %d: %.200s", i, f.text);
	}
}

void devices_probe(struct devices *d)
{
	struct fault f;
	int count = 0, err;

	*d = (struct devices){ 0 };
	if (!cuda_load(d->why_none, sizeof(d->why_none)))
		return;

	err = cuda_try(&f, cuInit, 0);
	err = err ?: cuda_try(&f, cuDeviceGetCount, &count);
	if (err < 0)
		snprintf(d->why_none, sizeof(d->why_none), "%.200s", f.text);
	else if (count > 0)
		probe_all(d, count);
	else
		snprintf(d->why_none, sizeof(d->why_none), "the driver shows no GPU");
}

void device_release_context(struct device *d)
{
	CUdevice handle;
	CUresult result;

	if (!take_ptr(d->context))
		return;

	result = cuda_call(cuDeviceGet, &handle, d->ordinal);
	cuda_undone(CUDA_INDEX(cuDeviceGet), result);
	if (result == CUDA_SUCCESS)
		cuda_undo(cuDevicePrimaryCtxRelease, handle);
}
