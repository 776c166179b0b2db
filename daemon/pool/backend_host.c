/* SPDX-License-Identifier: MIT
 *
 * Host memory without a driver: each block is a memfd of fixed size.
 *
 * If a memfd were shrunk, its readers would get SIGBUS; the seals SHRINK and GROW prevent that.
 * F_SEAL_SEAL comes when the buffer is published (daemon/catalog/buffer.c), together with
 * FUTURE_WRITE for a sealed one; until then only its creator has it. A new memfd has mode 0777, so
 * that a reader could open it again through /proc for writing; mode 0400 and the daemon's own uid
 * prevent that. A reader gets a second fd, opened read-only: no mapping of it can ever become
 * writable (mmap(2), mprotect(2): EACCES). A sealed block has only that one. The kernel zeroes
 * pages at their first use, so nothing is scrubbed here, and nothing is reused.
 */
#include "daemon/pool/pool_internal.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int fail(struct fault *f, const char *call, int error)
{
	enum code code = CODE_DRIVER;

	if (error == EMFILE || error == ENFILE)
		code = CODE_NO_FDS;
	if (error == ENOMEM || error == ENOSPC)
		code = CODE_POOL_FULL;
	return fault(f, code, "%s: %s", call, strerror(error));
}

static int host_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	ret->granularity = sysconf(_SC_PAGESIZE);
	return 0;
}

static int seal(int fd, uint64_t bytes, struct fault *f)
{
	if (ftruncate(fd, bytes) < 0)
		return fail(f, "ftruncate", errno);

	if (fchmod(fd, 0400) < 0)
		return fail(f, "fchmod", errno);

	if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return fail(f, "F_ADD_SEALS", errno);

	return 0;
}

static int host_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f)
{
	_cleanup_(close_fd) int fd = -1, fd_read_only = -1;
	struct block block = BLOCK_NONE;
	char text[96];
	int err;

	snprintf(text, sizeof(text), "gpushm:%s", pool->config.name); /* for /proc/PID/maps */
	fd = memfd_create(text, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return fail(f, "memfd_create", errno);

	err = seal(fd, bytes, f);
	if (err < 0)
		return err;

	snprintf(text, sizeof(text), "/proc/self/fd/%d", fd);
	fd_read_only = open(text, O_RDONLY | O_CLOEXEC);
	if (fd_read_only < 0)
		return fail(f, text, errno);

	block.bytes = bytes;
	block.fd = take_fd(&fd);
	block.fd_read_only = take_fd(&fd_read_only);
	*ret = block;
	return 0;
}

/* The last close frees the pages, which takes time if there are many: so the worker does it. */
static int host_free(struct pool *pool, struct block *block, struct fault *f)
{
	close_fd(&block->fd_read_only);
	close_fd(&block->fd);
	return 0;
}

static void host_close(struct pool *pool)
{
}

const struct pool_ops host_ops = {
	.kind = POOL_HOST,
	.needs_device = false,
	.reuses_pending = false,
	.open = host_open,
	.alloc = host_alloc,
	.free = host_free,
	.close = host_close,
};
