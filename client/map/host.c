/* SPDX-License-Identifier: MIT
 *
 * Host memory: a memfd of the daemon's, mapped. Before it is, it must be what was promised: a memfd
 * of the right size and owner that nobody can shrink under us (a shrunk one is a SIGBUS for who
 * reads it) or grow. What was asked for reading is mapped for reading; the fd itself is open for
 * reading only then, so that no later mprotect() can widen it.
 *
 * The mapping keeps the memory; no fd is kept.
 */
#include "client/base/endpoint.h"
#include "client/base/error.h"
#include "client/map/kind.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int host_prepare(const struct map_request *r, int *ret_device)
{
	if (r->device != GPUSHM_OWN_DEVICE)
		return error_set(ENODEV,
				 "a host buffer can't be mapped for GPU %d: use a pinned pool",
				 r->device);
	*ret_device = -1;
	return 0;
}

static int check(const struct map_request *r)
{
	struct stat st;
	int seals;

	if (fstat(r->fd, &st) < 0)
		return error_set(EPROTO, "can't look at the memory that the daemon sent: %m");
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size != r->allocated_bytes)
		return error_set(EPROTO,
				 "the memory that the daemon sent has not the size of %llu "
				 "bytes that it told",
				 (unsigned long long)r->allocated_bytes);
	if (!endpoint_owns(r->server_uid, st.st_uid))
		return error_set(EPROTO, "the memory that the daemon sent belongs to uid %u",
				 st.st_uid);
	seals = fcntl(r->fd, F_GET_SEALS);
	if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return error_set(EPROTO,
				 "the memory that the daemon sent is not sealed against shrinking");
	return 0;
}

static int host_map(const struct map_request *r, struct map_private *p)
{
	int prot = PROT_READ | (r->write ? PROT_WRITE : 0);
	void *memory;
	int result = check(r);

	if (result < 0)
		return result;
	memory = mmap(NULL, r->allocated_bytes, prot, MAP_SHARED, r->fd, 0);
	if (memory == MAP_FAILED)
		return error_set(errno == ENOMEM ? ENOMEM : EPROTO,
				 "can't map the memory that the daemon sent: %m");
	p->map.host_ptr = memory;
	return 0;
}

static int host_unmap(struct map_private *p)
{
	if (munmap(p->map.host_ptr, p->bytes) < 0)
		return error_set(EIO, "can't unmap the memory: %m");
	return 0;
}

static int host_protect(struct map_private *p)
{
	if (mprotect(p->map.host_ptr, p->bytes, PROT_READ) < 0)
		return error_set(errno, "can't make the memory read-only: %m");
	return 0;
}

static int host_synchronize(const struct map_private *p)
{
	return 0;
}

const struct map_kind map_host = { .knows_access = true,
				   .prepare = host_prepare,
				   .map = host_map,
				   .unmap = host_unmap,
				   .protect = host_protect,
				   .synchronize = host_synchronize };
