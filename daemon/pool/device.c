/* SPDX-License-Identifier: MIT
 *
 * The GPUs of this machine: found once, at the start, and known by UUID from then on.
 *
 * Nothing here makes a context: the questions asked need none, and one costs 523 MiB of the GPU
 * (measured on an H200, driver 580). A mempool retains it later; it is given back here, when the
 * worker that used it has ended. A GPU that can't be asked is left out and logged: the others work
 * on. An ordinal is this process's own (CUDA_VISIBLE_DEVICES may renumber) and never leaves it.
 */
#include "daemon/pool/device.h"

#include "daemon/pool/cuda.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

_Static_assert(UUID_BYTES == sizeof(CUuuid), "a UUID on the wire is CUDA's");

/* The node is not worth failing for: a driver before CUDA 12.2 has no such attribute. */
static int probe_numa_node(const struct cuda *cuda, CUdevice handle)
{
	int node = -1;

	if (cuda->device_get_attribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, handle))
		return -1;
	return node;
}

static int probe_one(const struct cuda *cuda, int ordinal, struct device *ret, struct fault *f)
{
	struct device d = { .ordinal = ordinal };
	CUdevice handle;
	CUuuid uuid;
	size_t bytes;
	CUresult result;

	result = cuda->device_get(&handle, ordinal);
	if (result)
		return cuda_fault(f, "cuDeviceGet", result);

	result = cuda->device_get_uuid(&uuid, handle);
	if (result)
		return cuda_fault(f, "cuDeviceGetUuid", result);

	result = cuda->device_get_name(d.name, sizeof(d.name), handle);
	if (result)
		return cuda_fault(f, "cuDeviceGetName", result);

	result = cuda->device_get_pci_bus_id(d.pci_id, sizeof(d.pci_id), handle);
	if (result)
		return cuda_fault(f, "cuDeviceGetPCIBusId", result);

	result = cuda->device_total_mem(&bytes, handle);
	if (result)
		return cuda_fault(f, "cuDeviceTotalMem", result);

	memcpy(d.uuid, uuid.bytes, sizeof(d.uuid));
	for (char *c = d.pci_id; *c; c++)
		*c = tolower((unsigned char)*c); /* as lspci and sysfs write it */
	d.bytes = bytes;
	d.numa_node = probe_numa_node(cuda, handle);
	*ret = d;
	return 0;
}

static void probe_all(struct devices *d, const struct cuda *cuda, int count)
{
	struct fault f;

	d->items = calloc(count, sizeof(*d->items));
	if (!d->items) {
		snprintf(d->why_none, sizeof(d->why_none), "out of memory");
		return;
	}

	for (int i = 0; i < count; i++) {
		if (probe_one(cuda, i, &d->items[d->n], &f) == 0) {
			list_init(&d->items[d->n].pools);
			d->n++;
			continue;
		}
		log_error("GPU %d is left out: %s", i, f.text);
		snprintf(d->why_none, sizeof(d->why_none), "GPU %d: %.200s", i, f.text);
	}
}

void devices_probe(struct devices *d)
{
	const struct cuda *cuda;
	struct fault f;
	CUresult result;
	int count;

	*d = (struct devices){ 0 };
	cuda = cuda_load(d->why_none, sizeof(d->why_none));
	if (!cuda)
		return;

	result = cuda->init(0);
	if (result) {
		cuda_fault(&f, "cuInit", result);
		snprintf(d->why_none, sizeof(d->why_none), "%.200s", f.text);
		return;
	}

	result = cuda->device_get_count(&count);
	if (result) {
		cuda_fault(&f, "cuDeviceGetCount", result);
		snprintf(d->why_none, sizeof(d->why_none), "%.200s", f.text);
		return;
	}

	if (count > 0)
		probe_all(d, cuda, count);
	else
		snprintf(d->why_none, sizeof(d->why_none), "the driver shows no GPU");
}

int devices_start(struct devices *d, uv_loop_t *loop)
{
	for (size_t i = 0; i < d->n; i++) {
		char name[32];
		int err;

		snprintf(name, sizeof(name), "gpu%d", d->items[i].ordinal);
		err = worker_new(loop, name, &d->items[i].worker);
		if (err < 0)
			return err;
	}
	return 0;
}

static void release_context(struct device *d)
{
	const struct cuda *cuda = cuda_load(NULL, 0);
	CUdevice handle;
	CUresult result;

	if (!take_ptr(d->context))
		return;

	result = cuda->device_get(&handle, d->ordinal);
	cuda_undone("cuDeviceGet", result);
	if (result == CUDA_SUCCESS)
		cuda_undone("cuDevicePrimaryCtxRelease", cuda->primary_ctx_release(handle));
}

void devices_done(struct devices *d)
{
	for (size_t i = 0; i < d->n; i++) {
		d->items[i].worker = worker_free(d->items[i].worker);
		release_context(&d->items[i]);
	}
	free_ptr(&d->items);
	d->n = 0;
}
