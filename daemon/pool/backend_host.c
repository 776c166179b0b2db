/* SPDX-License-Identifier: MIT
 *
 * Host memory without a driver: each block is a memfd of fixed size.
 *
 * If a memfd were shrunk, its readers would get SIGBUS; the seals SHRINK and GROW prevent that.
 * F_SEAL_SEAL comes when the buffer is published (daemon/catalog/buffer.c), together with
 * FUTURE_WRITE for a sealed one; until then only its creator has it. A new memfd has mode 0777, so
 * that a reader could open it again through /proc for writing; mode 0400 and the daemon's own uid
 * prevent that. A reader gets a second fd, opened read-only: no mapping of it can ever become
 * writable (mmap(2), mprotect(2): EACCES). A sealed block has only that one. Both are opened anew,
 * so that the daemon can see whether a client still has one (daemon/util/memfd.c). The kernel
 * zeroes pages at their first use, so nothing is scrubbed here, and nothing is reused.
 *
 * A page belongs to the control group of the process that uses it first. So a creator pays for what
 * it writes, and a reader for what nobody has written. With allocate=create the daemon allocates
 * all pages, and pays for them.
 */
#include "daemon/pool/pool_internal.h"
#include "daemon/util/memfd.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int fail(struct fault *f, const char *call, int error)
{
	enum code code = CODE_DRIVER;

	if (error == EMFILE || error == ENFILE)
		code = CODE_NO_FDS;
	if (error == ENOMEM || error == ENOSPC)
		code = CODE_POOL_FULL;
	return fault(f, code, "%s: %s%s", call, strerror(error),
		     error == EFBIG ? " (ulimit -f)" : "");
}

/* fallocate() of 1 GiB takes 0.7 s here (4 KiB pages): other requests of the worker run after each
 * step. */
#define STEP (16ull << 20)
#define RESERVE (64ull << 20) /* what stays free for the daemon itself */

/* What may be allocated before the limits are read again. */
struct host {
	uint64_t credit;   /* bytes */
	uint64_t until_ns; /* CLOCK_MONOTONIC */
};

static int host_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	pool->impl = calloc(1, sizeof(struct host));
	if (!pool->impl)
		return fault(f, CODE_NO_MEMORY, "out of memory");
	ret->granularity = sysconf(_SC_PAGESIZE);
	return 0;
}

static int host_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f)
{
	struct memfd m = MEMFD_NONE;
	const char *call;
	char text[96];
	int err;

	snprintf(text, sizeof(text), "gpushm:%s", pool->config.name); /* for /proc/PID/maps */
	err = memfd_make(text, bytes, SEALS, &m, &call);
	if (err < 0)
		return fail(f, call, -err);

	*ret = BLOCK_NONE;
	ret->bytes = bytes;
	ret->fd = m.fd;
	ret->fd_read_only = m.fd_read_only;
	ret->fd_original = m.fd_original;
	return 0;
}

/* Beyond what is free there is no error: the kernel ends processes. */
static int take_room(struct host *host, uint64_t bytes, struct fault *f)
{
	uint64_t now = clock_monotonic_ns(), left;
	const char *whose;

	if (bytes > host->credit || now > host->until_ns) {
		left = host_memory_free("/proc", "/sys/fs/cgroup", &whose);
		left = left > RESERVE ? left - RESERVE : 0;
		if (bytes > left)
			return fault(f, CODE_POOL_FULL, "%s has %s left", whose,
				     size_format(left).text);
		host->credit = bytes + (left - bytes) / 8;
		host->until_ns = now + 1000000000u;
	}
	host->credit -= bytes;
	return 0;
}

static int host_populate(struct pool *pool, const struct block *block, uint64_t *done,
			 struct fault *f)
{
	uint64_t left = block->bytes - *done, step = left < STEP ? left : STEP;
	int err;

	if (!pool->config.allocate)
		return 0;
	err = take_room(pool->impl, *done == 0 ? block->bytes : step, f);
	if (err < 0)
		return err;
	if (fallocate(block->fd, 0, (off_t)*done, (off_t)step) < 0)
		return fail(f, "fallocate", errno);
	*done += step;
	return *done < block->bytes ? -EINPROGRESS : 0;
}

/* The last close frees the pages, which takes time if there are many: so the worker does it. */
static int host_free(struct pool *pool, struct block *block, struct fault *f)
{
	close_fd(&block->fd_read_only);
	close_fd(&block->fd_original);
	close_fd(&block->fd);
	return 0;
}

static void host_close(struct pool *pool)
{
	free(take_ptr(pool->impl));
}

const struct pool_ops host_ops = {
	.kind = POOL_HOST,
	.reuses_pending = false,
	.open = host_open,
	.alloc = host_alloc,
	.populate = host_populate,
	.free = host_free,
	.close = host_close,
};
