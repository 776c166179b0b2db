/* SPDX-License-Identifier: MIT
 *
 * Copies. Each is a box of bytes with two pitches, a plain one a box of one row. A device's side
 * is checked row by row before a byte moves: the current context's GPU (or the stream's) must have
 * access, to the last byte. The host's side is an address of this process.
 *
 * Pageable memory of the host is staged: a line of up to 64 KiB to a device is taken at once, and
 * for all else the call waits until it is copied.
 */
#include "tests/fakecuda/fake_range.h"
#include "tests/fakecuda/fake_stream.h"

#include <stdlib.h>
#include <string.h>

#define STAGED_MAX 65536

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

static bool is_pageable(const struct side *s)
{
	return s->kind != SIDE_DEVICE && !range_find(s->start);
}

/* Whether a side is memory of the host, registered or not. */
static bool is_host(const struct box *b)
{
	const struct range *to = range_find(b->to.start), *from = range_find(b->from.start);

	return !to || !from || to->kind == RANGE_HOST || from->kind == RANGE_HOST;
}

/* A copy that is queued, with the bytes themselves behind it if they are staged. */
struct queued_copy {
	struct box box;
	unsigned int gpu;
	bool staged;
	_Alignas(16) unsigned char bytes[];
};

static void run_copy(void *data)
{
	struct queued_copy *c = data;

	if (c->staged) {
		c->box.from.start = (uintptr_t)c->bytes;
		c->box.from.kind = SIDE_HOST;
	}
	if (each_row(&c->box, c->gpu, true))
		misuse("a queued copy, to %#lx from %#lx, uses memory that was freed or unmapped",
		       c->box.to.start, c->box.from.start);
	else
		each_row(&c->box, c->gpu, false);
}

static CUresult put_copy(struct queue *q, const struct box *b, unsigned int gpu, bool staged)
{
	size_t size = sizeof(struct queued_copy) + (staged ? b->width : 0);
	struct queued_copy *c = calloc(1, size);
	CUresult result;

	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->box = *b;
	c->gpu = gpu;
	c->staged = staged;
	if (staged)
		memcpy(c->bytes, (void *)b->from.start, b->width);
	result = queue_put_work(q, run_copy, c, size);
	free(c);
	return result;
}

/* wait: a call without a stream, which waits unless both sides are a device's. */
static CUresult copy(const struct box *b, CUstream stream, bool wait)
{
	bool to_pageable = is_pageable(&b->to), from_pageable = is_pageable(&b->from), staged;
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result || !b->width || !b->rows || !b->slices)
		return result;
	result = each_row(b, gpu, true);
	if (result)
		return result;
	staged = from_pageable && !to_pageable && b->rows * b->slices == 1 &&
		 b->width <= STAGED_MAX && !q->capture && !queue_is_idle(q);
	result = put_copy(q, b, gpu, staged);
	if (result || q->capture || staged)
		return result;
	if (to_pageable || from_pageable || (wait && is_host(b)))
		queue_wait(q, q->queued);
	return CUDA_SUCCESS;
}

static CUresult copy_line(enum side_kind to_kind, uintptr_t to, enum side_kind from_kind,
			  uintptr_t from, size_t bytes, CUstream stream, bool wait)
{
	struct box b = {
		.to = { .kind = to_kind, .start = to },
		.from = { .kind = from_kind, .start = from },
		.width = bytes,
		.rows = 1,
		.slices = 1,
	};

	return copy(&b, stream, wait);
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

static CUresult copy_box(const CUDA_MEMCPY3D *c, CUstream stream, bool wait)
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
	return result ? result : copy(&b, stream, wait);
}

static CUresult copy_plane(const CUDA_MEMCPY2D *c, CUstream stream, bool wait)
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
	return copy_box(&box, stream, wait);
}

/* The functions differ in the kinds of their sides, and in whether they name a stream. */
#define COPY(to_kind, to, from_kind, from, n, stream, wait)                                        \
	FAKE_CALL(CALL_PLAIN, copy_line(to_kind, (uintptr_t)(to), from_kind, (uintptr_t)(from), n, \
					stream, wait))

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	return COPY(SIDE_ANY, dst, SIDE_ANY, src, n, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
	return COPY(SIDE_ANY, dst, SIDE_ANY, src, n, stream, false);
}

CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t n)
{
	return COPY(SIDE_DEVICE, dst, SIDE_HOST, src, n, NULL, true);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
	return COPY(SIDE_DEVICE, dst, SIDE_HOST, src, n, stream, false);
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t n)
{
	return COPY(SIDE_HOST, dst, SIDE_DEVICE, src, n, NULL, true);
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t n, CUstream stream)
{
	return COPY(SIDE_HOST, dst, SIDE_DEVICE, src, n, stream, false);
}

CUresult cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	return COPY(SIDE_DEVICE, dst, SIDE_DEVICE, src, n, NULL, true);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
	return COPY(SIDE_DEVICE, dst, SIDE_DEVICE, src, n, stream, false);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *c)
{
	return FAKE_CALL(CALL_PLAIN, copy_plane(c, NULL, true));
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *c)
{
	return FAKE_CALL(CALL_PLAIN, copy_plane(c, NULL, true));
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, copy_plane(c, stream, false));
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D *c)
{
	return FAKE_CALL(CALL_PLAIN, copy_box(c, NULL, true));
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *c, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, copy_box(c, stream, false));
}
