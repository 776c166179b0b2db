/* SPDX-License-Identifier: MIT
 *
 * Copies between a device's memory and the host's: rows of bytes, queued on a stream. The caller
 * decides the order of the rows of a strided array (client/lib/array/transfer.c).
 */
#include "client/lib/map/cuda.h"
#include "client/lib/map/map.h"

#include <limits.h>
#include <stdint.h>

/* CU_DEVICE_ATTRIBUTE_MAX_PITCH of every GPU so far: cuMemcpy2D refuses more. */
#define PITCH_MAX ((size_t)INT_MAX)

static int copy_row(const struct map_copy *c, size_t row, size_t bytes, CUstream stream)
{
	CUdeviceptr device = (uintptr_t)c->device + row * c->device_pitch;
	char *host = (char *)c->host + row * c->host_pitch;
	CUdeviceptr other = (uintptr_t)host;

	/* The driver finds the GPU of each address, which may be two. */
	if (c->on_device)
		return cuda_check("cuMemcpyAsync",
				  c->to_host ? cuda.cuMemcpyAsync(other, device, bytes, stream)
					     : cuda.cuMemcpyAsync(device, other, bytes, stream));
	return c->to_host ? cuda_try(cuMemcpyDtoHAsync, host, device, bytes, stream)
			  : cuda_try(cuMemcpyHtoDAsync, device, host, bytes, stream);
}

static int copy_each(const struct map_copy *c, CUstream stream)
{
	int r = 0;

	for (size_t row = 0; r == 0 && row < c->height; row++)
		r = copy_row(c, row, c->width, stream);
	return r;
}

static int copy_rows(const struct map_copy *c, CUstream stream)
{
	CUmemorytype other = c->on_device ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
	CUmemorytype own = c->on_device ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
	CUDA_MEMCPY2D copy = { .WidthInBytes = c->width, .Height = c->height };

	/* The driver reads the address that the memory's type says. */
	if (c->to_host) {
		copy.srcMemoryType = own;
		copy.srcDevice = (uintptr_t)c->device;
		copy.srcPitch = c->device_pitch;
		copy.dstMemoryType = other;
		copy.dstHost = c->host;
		copy.dstDevice = (uintptr_t)c->host;
		copy.dstPitch = c->host_pitch;
	} else {
		copy.srcMemoryType = other;
		copy.srcHost = c->host;
		copy.srcDevice = (uintptr_t)c->host;
		copy.srcPitch = c->host_pitch;
		copy.dstMemoryType = own;
		copy.dstDevice = (uintptr_t)c->device;
		copy.dstPitch = c->device_pitch;
	}
	return cuda_try(cuMemcpy2DAsync, &copy, stream);
}

int map_copy(const struct map_copy *copy, void *stream)
{
	bool whole = copy->height == 1 ||
		     (copy->device_pitch == copy->width && copy->host_pitch == copy->width);

	if (copy->width == 0 || copy->height == 0)
		return 0;
	if (whole)
		return copy_row(copy, 0, copy->width * copy->height, stream);
	if (copy->device_pitch > PITCH_MAX || copy->host_pitch > PITCH_MAX)
		return copy_each(copy, stream);
	return copy_rows(copy, stream);
}

int map_wait(void *stream)
{
	return cuda_try(cuStreamSynchronize, stream);
}
