/* SPDX-License-Identifier: MIT
 *
 * The chunked copies of put, create and get. A chunk goes through a block of memory, so that a file
 * of any size needs 8 MiB; if the CPU has the buffer mapped, there is no block, and the kernel
 * reads into and writes from the shared memory itself.
 * Signals are looked at between chunks.
 */
#include "client/ctl/transfer.h"

#include "client/ctl/ctl.h"
#include "client/ctl/read_ahead.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK (8u << 20)

void transfer_begin(struct transfer *t, const char *label, uint64_t total, bool quiet)
{
	t->started = clock_monotonic_ns();
	progress_begin(&t->progress, NULL, quiet, label, total);
	ctl_catch_signals();
}

void transfer_end(struct transfer *t)
{
	ctl_release_signals();
	progress_end(&t->progress);
}

static void advance(struct transfer *t, uint64_t bytes)
{
	progress_step(&t->progress, t->progress.done + bytes, clock_monotonic_ns() - t->started);
}

int transfer_open(const char **file, int *ret)
{
	bool standard = !strcmp(*file, "-");

	*ret = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
			: open(*file, O_RDONLY | O_CLOEXEC);
	*file = standard ? "standard input" : *file;
	return *ret < 0 ? ctl_error(CTL_FAILED, "%s: %s", *file, strerror(errno)) : CTL_OK;
}

bool transfer_rest(int fd, uint64_t *ret)
{
	off_t here = lseek(fd, 0, SEEK_CUR);
	struct stat st;

	if (here < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	*ret = st.st_size > here ? (uint64_t)(st.st_size - here) : 0;
	return true;
}

/* Reads or writes until all is done, the file ends or a signal came. */
static ssize_t move(int fd, char *buf, size_t size, bool out)
{
	size_t done = 0;

	while (done < size && !ctl_interrupted()) {
		ssize_t n = out ? write(fd, buf + done, size - done)
				: read(fd, buf + done, size - done);

		if (n < 0 && errno != EINTR && !ctl_interrupted())
			return -errno;
		if (n == 0 && !out)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	return ctl_interrupted() ? -EINTR : (ssize_t)done;
}

ssize_t transfer_read(int fd, void *buf, size_t size)
{
	return move(fd, buf, size, false);
}

static int failed(const char *file, int error)
{
	if (error == -EINTR)
		return ctl_error(CTL_FAILED, "interrupted");
	/* The reader closed our output because it has seen enough. */
	if (error == -EPIPE)
		return CTL_FAILED;
	return ctl_error(CTL_FAILED, "%s: %s", file, strerror(-error));
}

int transfer_write(int fd, const char *file, const void *buf, size_t size)
{
	ssize_t n = move(fd, (char *)buf, size, true);

	return n < 0 ? failed(file, (int)n) : CTL_OK;
}

static size_t chunk_of(uint64_t left)
{
	return left < CHUNK ? (size_t)left : CHUNK;
}

static ssize_t read_chunk(int fd, void *to, size_t size)
{
	if (fd >= 0)
		return transfer_read(fd, to, size);
	memset(to, 0, size);
	return ctl_interrupted() ? -EINTR : (ssize_t)size;
}

static bool is_device(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && !isatty(fd) && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode));
}

static int check_end(int fd, const char *file, uint64_t bytes)
{
	char next;
	ssize_t n = fd < 0 || is_device(fd) ? 0 : transfer_read(fd, &next, 1);

	if (n < 0)
		return failed(file, (int)n);
	return n == 0 ? CTL_OK
		      : ctl_error(CTL_FAILED,
				  "%s: it has more than the %" PRIu64
				  " bytes that the array needs; nothing was published",
				  file, bytes);
}

int transfer_fill(struct transfer *t, int fd, const char *file, struct gpushm_buffer *b,
		  uint64_t offset, uint64_t bytes)
{
	char *mapped = gpushm_buffer_host_ptr(b);
	_cleanup_(free_ptr) void *block = mapped ? NULL : malloc(chunk_of(bytes) + 1);

	if (!mapped && !block)
		return ctl_error(CTL_FAILED, "out of memory");
	for (uint64_t done = 0; done < bytes;) {
		size_t want = chunk_of(bytes - done);
		ssize_t n = read_chunk(fd, mapped ? mapped + offset + done : block, want);
		int r;

		if (n < 0)
			return failed(file, (int)n);
		if ((size_t)n < want)
			return ctl_error(CTL_FAILED,
					 "%s: it has %" PRIu64 " of the %" PRIu64
					 " bytes that the array needs; nothing was published",
					 file, done + (uint64_t)n, bytes);
		r = mapped ? 0 : gpushm_write(b, offset + done, block, want);
		if (r < 0)
			return ctl_refused(r);
		done += want;
		advance(t, want);
	}
	return check_end(fd, file, bytes);
}

static int dump_mapped(struct transfer *t, const char *mapped, uint64_t bytes, int fd,
		       const char *file)
{
	for (uint64_t done = 0; done < bytes;) {
		size_t n = chunk_of(bytes - done);
		int r = transfer_write(fd, file, mapped + done, n);

		if (r)
			return r;
		done += n;
		advance(t, n);
	}
	return CTL_OK;
}

static int dump_blocks(struct transfer *t, struct read_ahead *blocks, int fd, const char *file)
{
	const void *block = NULL;
	ssize_t n;

	while ((n = read_ahead_next(blocks, &block)) > 0) {
		int r = transfer_write(fd, file, block, (size_t)n);

		if (r)
			return r;
		advance(t, (uint64_t)n);
	}
	return n < 0 ? ctl_error(ctl_exit_code((int)n), "%s", read_ahead_error(blocks)) : CTL_OK;
}

static int dump_contiguous(struct transfer *t, const struct gpushm_array *a, int fd,
			   const char *file)
{
	const char *mapped = gpushm_array_host_ptr(a);
	uint64_t bytes = gpushm_array_nbytes(a);
	struct read_ahead *blocks = NULL;
	int r;

	if (mapped)
		return dump_mapped(t, mapped, bytes, fd, file);
	r = read_ahead_new(gpushm_array_buffer(a), gpushm_array_offset(a), bytes, &blocks);
	if (r < 0)
		return ctl_error(CTL_FAILED, "%s: %s", file, strerror(-r));
	r = dump_blocks(t, blocks, fd, file);
	read_ahead_free(blocks);
	return r;
}

/* Writes an array that fits one block. */
static int dump_small(struct transfer *t, const struct gpushm_array *a, int fd, const char *file)
{
	uint64_t bytes = gpushm_array_nbytes(a);
	_cleanup_(free_ptr) void *block = malloc(bytes + 1);
	int r;

	if (!block)
		return ctl_error(CTL_FAILED, "out of memory");
	r = gpushm_copy_to_host(a, block, NULL);
	if (r < 0)
		return ctl_refused(r);
	r = transfer_write(fd, file, block, bytes);
	advance(t, bytes);
	return r;
}

static int dump_c_order(struct transfer *t, const struct gpushm_array *a, int fd, const char *file);

/* Writes the parts along the first axis that fit a block; a row that is larger is split itself. */
static int dump_rows(struct transfer *t, const struct gpushm_array *a, int fd, const char *file)
{
	int64_t rows = gpushm_array_dim(a, 0);
	uint64_t row = gpushm_array_nbytes(a) / (uint64_t)rows;
	int64_t step = row >= CHUNK ? 1 : (int64_t)(CHUNK / row);

	for (int64_t i = 0; i < rows; i += step) {
		_cleanup_(free_array) struct gpushm_array *part = NULL;
		int r = row > CHUNK ? gpushm_array_index(a, 0, i, &part)
				    : gpushm_array_slice(a, 0, i, i + step, 1, &part);

		if (r < 0)
			return ctl_refused(r);
		r = dump_c_order(t, part, fd, file);
		if (r)
			return r;
	}
	return CTL_OK;
}

/* Parts are in C order even if they lie in Fortran order: the header is the whole array's. */
static int dump_c_order(struct transfer *t, const struct gpushm_array *a, int fd, const char *file)
{
	if (gpushm_array_is_c_contiguous(a))
		return dump_contiguous(t, a, fd, file);
	if (gpushm_array_nbytes(a) <= CHUNK)
		return dump_small(t, a, fd, file);
	return dump_rows(t, a, fd, file);
}

int transfer_dump_c(struct transfer *t, const struct gpushm_array *a, int fd, const char *file)
{
	return gpushm_array_nbytes(a) ? dump_c_order(t, a, fd, file) : CTL_OK;
}

int transfer_dump(struct transfer *t, const struct gpushm_array *a, int fd, const char *file)
{
	if (!gpushm_array_nbytes(a))
		return CTL_OK;
	if (gpushm_array_is_f_contiguous(a))
		return dump_contiguous(t, a, fd, file);
	return dump_c_order(t, a, fd, file);
}
