/* SPDX-License-Identifier: MIT
 *
 * The chunked copies of put, create and get. A chunk goes through one block of memory, 8 MiB, so
 * that a file of any size needs no more; where the CPU has the buffer mapped, there is no block at
 * all and the kernel reads into and writes from the shared memory itself.
 * It owns the block alone; files, buffers and arrays are the caller's.
 */
#include "client/ctl/transfer.h"

#include "client/ctl/ctl.h"
#include "client/ctl/interrupt.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <string.h>

#define CHUNK (8u << 20)

ssize_t transfer_read(int fd, void *buf, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = interrupt_pending() ? -1 : read(fd, (char *)buf + done, size - done);

		if (interrupt_pending())
			return -EINTR;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int transfer_write(int fd, const void *buf, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n =
			interrupt_pending() ? -1 : write(fd, (const char *)buf + done, size - done);

		if (interrupt_pending())
			return -EINTR;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return 0;
}

static int failed(const char *file, int error)
{
	if (error == -EINTR)
		return ctl_error(CTL_FAILED, "interrupted");
	/* Who closed our output has seen enough. */
	if (error == -EPIPE)
		return CTL_FAILED;
	return ctl_error(CTL_FAILED, "%s: %s", file, strerror(-error));
}

static size_t chunk_of(uint64_t left)
{
	return left < CHUNK ? (size_t)left : CHUNK;
}

int transfer_fill(int fd, const char *file, struct gpushm_buffer *b, uint64_t offset,
		  uint64_t bytes, struct progress *p)
{
	char *mapped = gpushm_buffer_host_ptr(b);
	_cleanup_(free_ptr) void *block = mapped ? NULL : malloc(chunk_of(bytes) + 1);

	if (!mapped && !block)
		return failed(file, -ENOMEM);
	for (uint64_t done = 0; done < bytes;) {
		size_t want = chunk_of(bytes - done);
		void *to = mapped ? mapped + offset + done : block;
		ssize_t n = transfer_read(fd, to, want);
		int r;

		if (n < 0)
			return failed(file, (int)n);
		if ((size_t)n < want)
			return ctl_error(CTL_FAILED,
					 "%s: it ends %" PRIu64 " bytes early: its header promises "
					 "%" PRIu64 " bytes of data",
					 file, bytes - done - (uint64_t)n, bytes);
		r = mapped ? 0 : gpushm_write(b, offset + done, block, want);
		if (r < 0)
			return ctl_refused(r);
		done += want;
		progress_add(p, want);
	}
	return CTL_OK;
}

int transfer_zero(struct gpushm_buffer *b, uint64_t offset, uint64_t bytes, struct progress *p)
{
	char *mapped = gpushm_buffer_host_ptr(b);
	_cleanup_(free_ptr) void *block = mapped ? NULL : calloc(1, chunk_of(bytes) + 1);

	if (!mapped && !block)
		return failed("zeros", -ENOMEM);
	for (uint64_t done = 0; done < bytes;) {
		size_t n = chunk_of(bytes - done);
		int r = 0;

		if (interrupt_pending())
			return failed("zeros", -EINTR);
		if (mapped)
			memset(mapped + offset + done, 0, n);
		else
			r = gpushm_write(b, offset + done, block, n);
		if (r < 0)
			return ctl_refused(r);
		done += n;
		progress_add(p, n);
	}
	return CTL_OK;
}

static int dump_contiguous(const struct gpushm_array *a, int fd, const char *file,
			   struct progress *p)
{
	struct gpushm_buffer *b = gpushm_array_buffer(a);
	const char *mapped = gpushm_array_host_ptr(a);
	uint64_t bytes = gpushm_array_nbytes(a), offset = gpushm_array_offset(a);
	_cleanup_(free_ptr) void *block = mapped ? NULL : malloc(chunk_of(bytes) + 1);
	int r;

	if (!mapped && !block)
		return failed(file, -ENOMEM);
	for (uint64_t done = 0; done < bytes;) {
		size_t n = chunk_of(bytes - done);

		r = mapped ? 0 : gpushm_read(b, offset + done, block, n);
		if (r < 0)
			return ctl_refused(r);
		r = transfer_write(fd, mapped ? mapped + done : block, n);
		if (r < 0)
			return failed(file, r);
		done += n;
		progress_add(p, n);
	}
	return CTL_OK;
}

/* An array that fits one block. */
static int dump_small(const struct gpushm_array *a, int fd, const char *file, struct progress *p)
{
	uint64_t bytes = gpushm_array_nbytes(a);
	_cleanup_(free_ptr) void *block = malloc(bytes + 1);
	int r;

	if (!block)
		return failed(file, -ENOMEM);
	r = gpushm_copy_to_host(a, block, NULL);
	if (r < 0)
		return ctl_refused(r);
	r = transfer_write(fd, block, bytes);
	if (r < 0)
		return failed(file, r);
	progress_add(p, bytes);
	return CTL_OK;
}

static int dump_c_order(const struct gpushm_array *a, int fd, const char *file, struct progress *p);

/* Along the first axis, in parts that fit a block; a row that does not is taken apart itself. */
static int dump_rows(const struct gpushm_array *a, int fd, const char *file, struct progress *p)
{
	int64_t rows = gpushm_array_dim(a, 0);
	uint64_t row = gpushm_array_nbytes(a) / (uint64_t)rows;
	int64_t step = row >= CHUNK ? 1 : (int64_t)(CHUNK / row);

	for (int64_t i = 0; i < rows; i += step) {
		struct gpushm_array *part = NULL;
		int r = row > CHUNK ? gpushm_array_index(a, 0, i, &part)
				    : gpushm_array_slice(a, 0, i, i + step, 1, &part);

		if (r < 0)
			return ctl_refused(r);
		r = dump_c_order(part, fd, file, p);
		gpushm_array_free(part);
		if (r)
			return r;
	}
	return CTL_OK;
}

/* Only the whole array may be written as it lies where that is Fortran's order: the header says
 * so for all of it. */
static int dump_c_order(const struct gpushm_array *a, int fd, const char *file, struct progress *p)
{
	if (gpushm_array_is_c_contiguous(a))
		return dump_contiguous(a, fd, file, p);
	if (gpushm_array_nbytes(a) <= CHUNK)
		return dump_small(a, fd, file, p);
	return dump_rows(a, fd, file, p);
}

int transfer_dump(const struct gpushm_array *a, int fd, const char *file, struct progress *p)
{
	if (!gpushm_array_nbytes(a))
		return CTL_OK;
	if (gpushm_array_is_f_contiguous(a))
		return dump_contiguous(a, fd, file, p);
	return dump_c_order(a, fd, file, p);
}
