/* SPDX-License-Identifier: MIT
 *
 * As host memory (daemon/pool/backend_host.c): the size is sealed, mode 0400 and the daemon's own
 * uid keep a process from opening a page again for writing, and what is lent was opened anew, so
 * that the daemon can see whether a process still has it (daemon/util/memfd.h). A process that may
 * write to a page can also punch a hole into it: then it reads zeros, and so does the daemon. A GPU
 * that has registered the page goes on reading the memory that was there. No seal forbids that: one
 * against writing would also keep the next daemon from mapping the page.
 */
#include "daemon/catalog/stream_page.h"

#include "daemon/util/memfd.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
#define FDS 2u /* that stay open, and one more: the original */

static int fail(struct fault *f, const char *call, int e)
{
	return fault(f,
		     e == EMFILE || e == ENFILE	  ? CODE_NO_FDS
		     : e == ENOMEM || e == ENOSPC ? CODE_NO_MEMORY
						  : CODE_DRIVER,
		     "a page of the stream: %s: %s", call, strerror(e));
}

/* The kernel's pages that it takes. */
static uint64_t memory_of(const struct stream_page *p)
{
	return (p->bytes + 4095) & ~(uint64_t)4095;
}

static int charge_page(struct accounts *a, uid_t uid, uint64_t slack, struct stream_page *p,
		       struct fault *f)
{
	int r = charge(a, uid, ACCOUNT_TABLES, memory_of(p), slack, &p->bytes_charge, f);

	if (r == 0)
		r = charge(a, uid, ACCOUNT_FDS, FDS + 1, slack, &p->fds_charge, f);
	if (r == 0)
		r = charge(a, uid, ACCOUNT_KEPT_PAGES, 1, slack, &p->kept_charge, f);
	return r;
}

static struct stream_page *alloc_page(size_t bytes)
{
	struct stream_page *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	list_init(&p->link);
	p->bytes = bytes;
	p->fd = p->fd_read_only = p->fd_original = -1;
	p->fd_index = STREAM_PAGE_NOT_KEPT;
	return p;
}

static void free_page(struct stream_page **p)
{
	*p = stream_page_free(*p);
}

static int map_page(struct stream_page *p)
{
	void *map = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd_original, 0);

	if (map == MAP_FAILED)
		return -errno;
	p->map = map;
	return 0;
}

static int make_memory(struct stream_page *p, struct fault *f)
{
	struct memfd m = MEMFD_NONE;
	const char *call;
	int r = memfd_make("gpushm-stream", p->bytes, SEALS, &m, &call);

	if (r < 0)
		return fail(f, call, -r);
	p->fd = m.fd;
	p->fd_read_only = m.fd_read_only;
	p->fd_original = m.fd_original;
	if (fallocate(p->fd, 0, 0, (off_t)p->bytes) < 0)
		return fail(f, "fallocate", errno);
	r = map_page(p);
	return r < 0 ? fail(f, "mmap", -r) : 0;
}

int stream_page_new(struct accounts *a, uid_t uid, size_t bytes, struct stream_page **ret,
		    struct fault *f)
{
	_cleanup_(free_page) struct stream_page *p = alloc_page(bytes);
	int r = p ? charge_page(a, uid, 0, p, f)
		  : fault(f, CODE_NO_MEMORY, "the daemon is out of memory");

	if (r == 0)
		r = make_memory(p, f);
	if (r == 0)
		*ret = take_ptr(p);
	return r;
}

int stream_page_adopt(struct accounts *a, uid_t uid, size_t bytes, int fd, struct stream_page **ret)
{
	_cleanup_(close_fd) int kept = fd;
	_cleanup_(free_page) struct stream_page *p = NULL;
	struct fault ignored;
	int r;

	if (fd < 0 || !memfd_fits(fd, bytes, SEALS))
		return -EBADF;
	p = alloc_page(bytes);
	if (!p)
		return -ENOMEM;
	p->fd_original = take_fd(&kept);
	r = charge_page(a, uid, UINT64_MAX, p, &ignored);
	if (r < 0)
		return r;
	p->fd = memfd_reopen_writable(p->fd_original);
	p->fd_read_only = p->fd < 0 ? -1 : memfd_reopen(p->fd_original, O_RDONLY);
	if (p->fd_read_only < 0)
		return p->fd < 0 ? p->fd : p->fd_read_only;
	r = map_page(p);
	if (r < 0)
		return r;
	stream_page_drop_original(p);
	*ret = take_ptr(p);
	return 0;
}

void stream_page_drop_original(struct stream_page *p)
{
	struct fault ignored;

	close_fd(&p->fd_original);
	recharge(&p->fds_charge, FDS, &ignored);
}

static void unmap(struct stream_page *p)
{
	if (p->map)
		munmap(p->map, p->bytes);
	p->map = NULL;
}

struct stream_page *stream_page_free(struct stream_page *p)
{
	if (!p)
		return NULL;
	list_drop(&p->link);
	unmap(p);
	close_fd(&p->fd);
	close_fd(&p->fd_read_only);
	close_fd(&p->fd_original);
	discharge(&p->bytes_charge);
	discharge(&p->fds_charge);
	discharge(&p->kept_charge);
	free(p);
	return NULL;
}

/* ---- retired pages ---- */

struct stream_page *stream_page_retire(struct stream_page *p, struct retired_pages *retired)
{
	struct fault ignored;

	if (!p)
		return NULL;
	unmap(p);
	close_fd(&p->fd);
	close_fd(&p->fd_original);
	discharge(&p->kept_charge);
	recharge(&p->fds_charge, 1, &ignored);
	memfd_withdraw(&p->fd_read_only);
	if (!memfd_is_held(p->fd_read_only))
		return stream_page_free(p);
	list_insert(&retired->all, &p->link);
	retired->n++;
	retired->bytes += memory_of(p);
	return NULL;
}

void retired_pages_look(struct retired_pages *retired, unsigned n)
{
	for (n = n < retired->n ? n : retired->n; n > 0; n--) {
		struct stream_page *p = list_first(&retired->all, struct stream_page, link);

		list_drop(&p->link);
		if (memfd_is_held(p->fd_read_only)) {
			list_insert(&retired->all, &p->link);
			continue;
		}
		retired->n--;
		retired->bytes -= memory_of(p);
		stream_page_free(p);
	}
}

void retired_pages_done(struct retired_pages *retired)
{
	struct stream_page *p;

	list_drain (p, &retired->all, link)
		stream_page_free(p);
	retired->n = 0;
	retired->bytes = 0;
}
