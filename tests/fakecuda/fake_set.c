/* SPDX-License-Identifier: MIT
 *
 * cuMemset*. Whole pages of zeros are punched out of the memfd (madvise(2), MADV_REMOVE) and not
 * written, so that a scrub of gigabytes costs a test neither time nor memory.
 */
#include "tests/fakecuda/fake_range.h"
#include "tests/fakecuda/fake_stream.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ull

static void zero(unsigned char *p, size_t n)
{
	size_t head = -(uintptr_t)p & (PAGE - 1);
	size_t whole = n > head ? (n - head) & ~(PAGE - 1) : 0;

	if (whole && madvise(p + head, whole, MADV_REMOVE) == 0) {
		memset(p, 0, head);
		memset(p + head + whole, 0, n - head - whole);
		return;
	}
	memset(p, 0, n);
}

/* `width` bytes at a time; a run begins and ends at a multiple of it, as mappings do. */
static void fill_run(unsigned char *p, size_t n, uint32_t value, size_t width)
{
	if (!value)
		zero(p, n);
	else if (width == 1)
		memset(p, (int)value, n);
	else
		for (size_t i = 0; i + width <= n; i += width)
			memcpy(p + i, &value, width);
}

/* FAKECUDA_BREAK=stops: a process of its own writes to that page when this one has ended. */
static void write_later(unsigned char *p, int value)
{
	static bool done;
	unsigned char *page = (unsigned char *)((uintptr_t)p & ~(PAGE - 1));
	pid_t maker = getpid();

	if (done || !is_broken("stops"))
		return;
	done = true;
	madvise(page, PAGE, MADV_DOFORK);
	if (fork() == 0) {
		while (getppid() == maker)
			poll(NULL, 0, 1);
		for (int i = 0; i < 50; i++, poll(NULL, 0, 10))
			*p = (unsigned char)value;
		_exit(0);
	}
	madvise(page, PAGE, MADV_DONTFORK);
}

struct queued_fill {
	CUdeviceptr at;
	uint32_t value;
	size_t width, bytes;
	unsigned int gpu;
};

static void run_fill(void *data)
{
	struct queued_fill *f = data;
	size_t run;

	if (!range_allows(f->at, f->bytes, f->gpu, true)) {
		misuse("a queued memset of %#llx uses memory that was freed or unmapped", f->at);
		return;
	}
	for (size_t done = 0; done < f->bytes; done += run) {
		unsigned char *p = range_at(f->at + done, &run);

		if (run > f->bytes - done)
			run = f->bytes - done;
		fill_run(p, run, f->value, f->width);
		write_later(p, (int)f->value);
	}
}

static CUresult fill(CUdeviceptr at, uint32_t value, size_t width, size_t count, CUstream stream)
{
	struct queued_fill f = { .at = at, .value = value, .width = width };
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &f.gpu);

	if (result || !count)
		return result;
	f.bytes = count * width;
	if (at % width || count > SIZE_MAX / width || !range_allows(at, f.bytes, f.gpu, true))
		return CUDA_ERROR_INVALID_VALUE;
	return queue_put_work(q, run_fill, &f, sizeof(f));
}

CUresult cuMemsetD8(CUdeviceptr dst, unsigned char value, size_t n)
{
	return FAKE_CALL(CALL_PLAIN, fill(dst, value, 1, n, NULL));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, fill(dst, value, 1, n, stream));
}

CUresult cuMemsetD32(CUdeviceptr dst, unsigned int value, size_t n)
{
	return FAKE_CALL(CALL_PLAIN, fill(dst, value, 4, n, NULL));
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, fill(dst, value, 4, n, stream));
}
