/* SPDX-License-Identifier: MIT
 *
 * Copies between a device's memory and the host's, for the arrays: rows of bytes, queued on a
 * stream. What order the rows of a strided array come in is the caller's business. This room makes
 * the driver calls and holds nothing.
 */
#include "client/map/context.h"
#include "client/map/kind.h"

#include <limits.h>
#include <stdint.h>

/* CU_DEVICE_ATTRIBUTE_MAX_PITCH of every GPU so far: cuMemcpy2D refuses more. */
#define PITCH_MAX ((size_t)INT_MAX)

int map_enter(int device, struct map_entered *ret)
{
	const struct cuda *cu;
	int r;

	if (device < 0) {
		*ret = (struct map_entered){ 0 };
		return 0;
	}
	r = cuda_start(&cu);
	return r < 0 ? r : context_enter(cu, device, ret);
}

void map_leave(struct map_entered *e)
{
	const struct cuda *cu;

	if (e->pushed && cuda_start(&cu) == 0)
		context_leave(cu, e);
	e->pushed = false;
}

static int copy_row(const struct cuda *cu, const struct map_copy *c, size_t row, size_t bytes,
		    CUstream stream)
{
	CUdeviceptr device = (uintptr_t)c->device + row * c->device_pitch;
	char *host = (char *)c->host + row * c->host_pitch;
	CUresult result = c->to_host ? cu->memcpy_dtoh_async(host, device, bytes, stream)
				     : cu->memcpy_htod_async(device, host, bytes, stream);

	if (result == CUDA_SUCCESS)
		return 0;
	return cuda_failed(c->to_host ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync", result);
}

static int copy_each(const struct cuda *cu, const struct map_copy *c, CUstream stream)
{
	for (size_t row = 0; row < c->height; row++) {
		int r = copy_row(cu, c, row, c->width, stream);

		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_rows(const struct cuda *cu, const struct map_copy *c, CUstream stream)
{
	CUDA_MEMCPY2D copy = { .WidthInBytes = c->width, .Height = c->height };
	CUresult result;

	if (c->to_host) {
		copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.srcDevice = (uintptr_t)c->device;
		copy.srcPitch = c->device_pitch;
		copy.dstMemoryType = CU_MEMORYTYPE_HOST;
		copy.dstHost = c->host;
		copy.dstPitch = c->host_pitch;
	} else {
		copy.srcMemoryType = CU_MEMORYTYPE_HOST;
		copy.srcHost = c->host;
		copy.srcPitch = c->host_pitch;
		copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.dstDevice = (uintptr_t)c->device;
		copy.dstPitch = c->device_pitch;
	}
	result = cu->memcpy_2d_async(&copy, stream);
	return result == CUDA_SUCCESS ? 0 : cuda_failed("cuMemcpy2DAsync", result);
}

int map_copy(const struct map_copy *copy, void *stream)
{
	bool whole = copy->height == 1 ||
		     (copy->device_pitch == copy->width && copy->host_pitch == copy->width);
	const struct cuda *cu;
	int r = cuda_start(&cu);

	if (r < 0 || copy->width == 0 || copy->height == 0)
		return r;
	if (whole)
		return copy_row(cu, copy, 0, copy->width * copy->height, stream);
	if (copy->device_pitch > PITCH_MAX || copy->host_pitch > PITCH_MAX)
		return copy_each(cu, copy, stream);
	return copy_rows(cu, copy, stream);
}

int map_wait(void *stream)
{
	const struct cuda *cu;
	CUresult result;
	int r = cuda_start(&cu);

	if (r < 0)
		return r;
	result = cu->stream_synchronize(stream);
	return result == CUDA_SUCCESS ? 0 : cuda_failed("cuStreamSynchronize", result);
}
