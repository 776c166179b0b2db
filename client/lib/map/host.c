/* SPDX-License-Identifier: MIT
 *
 * Host memory: the daemon's memfd, mapped. Before that it is checked: its size and its owner, and
 * seals against shrinking (which would raise SIGBUS in a reader) and growing. For a reader the
 * mapping is read-only, and so is the fd that the daemon sends, so that no later mprotect() can
 * make it writable.
 *
 * A copy-on-write mapping is a private one (MAP_PRIVATE): it may be written to, although the fd is
 * read-only and the memory may be sealed.
 *
 * The mapping keeps the memory; the map keeps no fd.
 */
#include "client/lib/base/endpoint.h"
#include "client/lib/base/error.h"
#include "client/lib/map/map.h"
#include "proto/base/huge_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

static int host_prepare(const struct map_request *r, int *ret_owner, int *ret_device)
{
	if (r->device >= 0)
		return error_set(ENODEV,
				 "a host buffer can't be mapped for GPU %d: use a pinned pool",
				 r->device);
	*ret_device = -1;
	return 0;
}

/* Where the last large memory was mapped. The next one goes there if it is gone by now. */
static _Atomic uintptr_t last;

/* Large memory at a multiple of HUGE_PAGE, so that it can have huge pages. at: NULL, or where it
 * has to be. */
static void *map_file(char *at, size_t bytes, int prot, int flags, int fd)
{
	char *wish = at ? at : bytes < HUGE_PAGE ? NULL : (char *)last, *memory;
	size_t beyond;

	memory = mmap(wish, bytes, prot, flags | (at ? MAP_FIXED : 0), fd, 0);
	if (at || bytes < HUGE_PAGE || memory == MAP_FAILED)
		return memory;
	beyond = (uintptr_t)memory % HUGE_PAGE;
	if (beyond > 0) {
		munmap(memory, bytes);
		memory = mmap(memory - beyond, bytes, prot, flags, fd, 0);
	}
	last = (uintptr_t)memory / HUGE_PAGE * HUGE_PAGE;
	return memory;
}

static int host_map(const struct map_request *r, struct map_private *p)
{
	int prot = PROT_READ | (p->write ? PROT_WRITE : 0);
	int flags = p->copy_on_write ? MAP_PRIVATE : MAP_SHARED;
	struct stat st;
	void *memory;
	int result = endpoint_check_file("the memory that the daemon sent", r->fd, r->server_uid,
					 r->allocated_bytes, F_SEAL_SHRINK | F_SEAL_GROW, &st);

	if (result < 0)
		return result;
	memory = map_file(p->map.host_ptr, r->allocated_bytes, prot, flags, r->fd);
	if (memory == MAP_FAILED)
		return error_set(errno == ENOMEM ? ENOMEM : EPROTO,
				 "can't map the memory that the daemon sent: %m");
	p->map.host_ptr = memory;
	return 0;
}

/* Kept addresses have pages that nobody may touch, and that take no memory. */
static int host_unmap(struct map_private *p, bool keep)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	bool failed = keep ? mmap(p->map.host_ptr, p->bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED
			   : munmap(p->map.host_ptr, p->bytes) < 0;

	return failed ? error_set(EIO, "can't unmap the memory: %m") : 0;
}

static int host_protect(struct map_private *p)
{
	if (mprotect(p->map.host_ptr, p->bytes, PROT_READ) < 0)
		return error_set(errno, "can't make the memory read-only: %m");
	return 0;
}

const struct map_kind map_host = { .knows_access = true,
				   .knows_copy_on_write = true,
				   .is_inherited = true,
				   .prepare = host_prepare,
				   .map = host_map,
				   .unmap = host_unmap,
				   .protect = host_protect };
