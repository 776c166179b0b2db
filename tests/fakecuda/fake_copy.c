/* SPDX-License-Identifier: MIT
 *
 * Copies. Each is a box of bytes with two pitches, a plain one a box of one row. A device's side
 * is checked row by row before a byte moves: the current context's GPU (or the stream's) must have
 * access, to the last byte. The host's side is an address of this process.
 */
#include "tests/fakecuda/fake_range.h"
#include "tests/fakecuda/fake_stream.h"

#include <string.h>

enum side_kind { SIDE_HOST, SIDE_DEVICE, SIDE_ANY };

struct side {
	enum side_kind kind;
	uintptr_t start;      /* of the box's first byte */
	size_t pitch, height; /* bytes of a row, rows of a slice */
};

struct box {
	struct side to, from;
	size_t width, rows, slices; /* bytes, rows, slices */
};

static uintptr_t row_of(const struct side *s, size_t slice, size_t row)
{
	return s->start + (slice * s->height + row) * s->pitch;
}

/* Memory that the driver knows is a device's, any other the host's. */
static bool is_device(const struct side *s, uintptr_t at)
{
	return s->kind == SIDE_DEVICE || (s->kind == SIDE_ANY && range_find(at));
}

static CUresult check_row(const struct side *s, uintptr_t at, size_t n, unsigned int gpu,
			  bool write)
{
	if (is_device(s, at))
		return range_allows(at, n, gpu, write) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	return at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static unsigned char *side_at(const struct side *s, uintptr_t at, size_t *run)
{
	size_t here = *run;
	unsigned char *p = is_device(s, at) ? range_at(at, &here) : (unsigned char *)at;

	if (here < *run)
		*run = here;
	return p;
}

/* A row may lie in several mappings on either side. */
static void copy_row(const struct box *b, uintptr_t to, uintptr_t from)
{
	size_t run;

	for (size_t done = 0; done < b->width; done += run) {
		unsigned char *d, *s;

		run = b->width - done;
		d = side_at(&b->to, to + done, &run);
		s = side_at(&b->from, from + done, &run);
		memmove(d, s, run);
	}
}

static CUresult each_row(const struct box *b, unsigned int gpu, bool check)
{
	for (size_t z = 0; z < b->slices; z++) {
		for (size_t y = 0; y < b->rows; y++) {
			uintptr_t to = row_of(&b->to, z, y), from = row_of(&b->from, z, y);
			CUresult result = CUDA_SUCCESS;

			if (!check)
				copy_row(b, to, from);
			else
				result = check_row(&b->to, to, b->width, gpu, true) |
					 check_row(&b->from, from, b->width, gpu, false);
			if (result)
				return result;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult copy(const struct box *b, CUstream stream)
{
	unsigned int gpu;
	CUresult result = stream_gpu(stream, &gpu);

	if (result || !b->width || !b->rows || !b->slices)
		return result;
	result = each_row(b, gpu, true);
	return result ? result : each_row(b, gpu, false);
}

static CUresult copy_line(enum side_kind to_kind, uintptr_t to, enum side_kind from_kind,
			  uintptr_t from, size_t bytes, CUstream stream)
{
	struct box b = {
		.to = { .kind = to_kind, .start = to },
		.from = { .kind = from_kind, .start = from },
		.width = bytes,
		.rows = 1,
		.slices = 1,
	};

	return copy(&b, stream);
}

/* One side of a CUDA_MEMCPY3D. */
struct corner {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	size_t x, y, z, pitch, height;
};

static CUresult side_of(const struct corner *c, size_t width, size_t rows, struct side *ret)
{
	static const enum side_kind kinds[] = {
		[CU_MEMORYTYPE_HOST] = SIDE_HOST,
		[CU_MEMORYTYPE_DEVICE] = SIDE_DEVICE,
		[CU_MEMORYTYPE_UNIFIED] = SIDE_ANY,
	};
	uintptr_t base = c->type == CU_MEMORYTYPE_HOST ? (uintptr_t)c->host : c->device;

	if (c->type == CU_MEMORYTYPE_ARRAY || c->type > CU_MEMORYTYPE_UNIFIED || !c->type)
		return CUDA_ERROR_INVALID_VALUE;
	ret->kind = kinds[c->type];
	ret->pitch = c->pitch ? c->pitch : c->x + width;
	ret->height = c->height ? c->height : c->y + rows;
	if (ret->pitch < c->x + width || ret->height < c->y + rows)
		return CUDA_ERROR_INVALID_VALUE;
	ret->start = base + (c->z * ret->height + c->y) * ret->pitch + c->x;
	return CUDA_SUCCESS;
}

static CUresult copy_box(const CUDA_MEMCPY3D *c, CUstream stream)
{
	struct corner to, from;
	struct box b;
	CUresult result;

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	to = (struct corner){ c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes,
			      c->dstY,		c->dstZ,    c->dstPitch,  c->dstHeight };
	from = (struct corner){ c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes,
				c->srcY,	  c->srcZ,    c->srcPitch,  c->srcHeight };
	b.width = c->WidthInBytes;
	b.rows = c->Height;
	b.slices = c->Depth;
	result = side_of(&to, b.width, b.rows, &b.to);
	if (result == CUDA_SUCCESS)
		result = side_of(&from, b.width, b.rows, &b.from);
	return result ? result : copy(&b, stream);
}

static CUresult copy_plane(const CUDA_MEMCPY2D *c, CUstream stream)
{
	CUDA_MEMCPY3D box = { .Depth = 1 };

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	box.srcMemoryType = c->srcMemoryType;
	box.srcHost = c->srcHost;
	box.srcDevice = c->srcDevice;
	box.srcXInBytes = c->srcXInBytes;
	box.srcY = c->srcY;
	box.srcPitch = c->srcPitch;
	box.dstMemoryType = c->dstMemoryType;
	box.dstHost = c->dstHost;
	box.dstDevice = c->dstDevice;
	box.dstXInBytes = c->dstXInBytes;
	box.dstY = c->dstY;
	box.dstPitch = c->dstPitch;
	box.WidthInBytes = c->WidthInBytes;
	box.Height = c->Height;
	return copy_box(&box, stream);
}

/* The functions differ in the kinds of their sides, and in whether they name a stream. */
#define COPY(to_kind, to, from_kind, from, n, stream) \
	FAKE_CALL(CALL_PLAIN,                         \
		  copy_line(to_kind, (uintptr_t)(to), from_kind, (uintptr_t)(from), n, stream))

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	return COPY(SIDE_ANY, dst, SIDE_ANY, src, n, NULL);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
	return COPY(SIDE_ANY, dst, SIDE_ANY, src, n, stream);
}

CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t n)
{
	return COPY(SIDE_DEVICE, dst, SIDE_HOST, src, n, NULL);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
	return COPY(SIDE_DEVICE, dst, SIDE_HOST, src, n, stream);
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t n)
{
	return COPY(SIDE_HOST, dst, SIDE_DEVICE, src, n, NULL);
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t n, CUstream stream)
{
	return COPY(SIDE_HOST, dst, SIDE_DEVICE, src, n, stream);
}

CUresult cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	return COPY(SIDE_DEVICE, dst, SIDE_DEVICE, src, n, NULL);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
	return COPY(SIDE_DEVICE, dst, SIDE_DEVICE, src, n, stream);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *c)
{
	return FAKE_CALL(CALL_PLAIN, copy_plane(c, NULL));
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *c)
{
	return FAKE_CALL(CALL_PLAIN, copy_plane(c, NULL));
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, copy_plane(c, stream));
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D *c)
{
	return FAKE_CALL(CALL_PLAIN, copy_box(c, NULL));
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *c, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, copy_box(c, stream));
}
