/* SPDX-License-Identifier: MIT
 *
 * A memfd like those of the host pools: its size is sealed, its mode keeps everybody else from
 * opening it for writing, and clients get an fd that was opened read-only. It is STATUS_PAGE_BYTES
 * long from the start and gets memory by fallocate() as it is used, so that writing to it never
 * ends in a SIGBUS.
 *
 * A cell belongs to one buffer until the buffer is freed, which is after its last lease. So a
 * client with a lease never finds another buffer there, unless the lease was lost with the daemon;
 * then the id in the cell shows it.
 */
#include "daemon/catalog/status_page.h"

#include "daemon/util/memfd.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
#define STEP_BYTES 4096u /* of memory at a time */

/* ---- the file ---- */

static size_t end_of(uint32_t cells)
{
	return sizeof(struct status_page_layout) + (size_t)cells * sizeof(struct status_page_cell);
}

static int back(struct status_page *p, uint32_t cells)
{
	size_t bytes = (end_of(cells) + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;

	if (cells <= p->backed)
		return 0;
	if (fallocate(p->fd, 0, 0, (off_t)bytes) < 0)
		return -errno;
	p->backed = (uint32_t)((bytes - sizeof(struct status_page_layout)) /
			       sizeof(struct status_page_cell));
	return 0;
}

static int open_both(struct status_page *p)
{
	void *map;

	if (p->fd_read_only < 0)
		p->fd_read_only = memfd_reopen(p->fd, O_RDONLY);
	if (p->fd_read_only < 0)
		return p->fd_read_only;
	p->free = malloc(STATUS_PAGE_CELLS * sizeof(*p->free));
	if (!p->free)
		return -ENOMEM;
	map = mmap(NULL, STATUS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	p->map = map;
	return 0;
}

int status_page_new(struct status_page *ret)
{
	_cleanup_(status_page_done) struct status_page p = STATUS_PAGE_CLOSED;
	struct memfd m = MEMFD_NONE;
	const char *call;
	int r = memfd_make("gpushm-board", STATUS_PAGE_BYTES, SEALS, &m, &call);

	p.fd = m.fd;
	p.fd_read_only = m.fd_read_only;
	close_fd(&m.fd_original);
	if (r == 0)
		r = back(&p, 1);
	if (r == 0)
		r = open_both(&p);
	if (r < 0)
		return r;
	p.map->magic = STATUS_PAGE_MAGIC;
	p.map->version = STATUS_PAGE_VERSION;
	*ret = p;
	p = STATUS_PAGE_CLOSED;
	return 0;
}

static int check(struct status_page *p)
{
	if (p->map->magic != STATUS_PAGE_MAGIC || status_page_used(p) > STATUS_PAGE_CELLS)
		return -EBADMSG;
	return p->map->version == STATUS_PAGE_VERSION ? 0 : -EPROTONOSUPPORT;
}

int status_page_adopt(int *fd, struct status_page *ret)
{
	_cleanup_(status_page_done) struct status_page p = STATUS_PAGE_CLOSED;
	int r;

	if (!memfd_fits(*fd, STATUS_PAGE_BYTES, SEALS))
		return -EBADMSG;
	p.fd = *fd;
	r = back(&p, 1);
	if (r == 0)
		r = open_both(&p);
	if (r == 0)
		r = check(&p);
	if (r == 0)
		r = back(&p, status_page_used(&p));
	if (r < 0) {
		p.fd = -1; /* it stays the caller's */
		return r;
	}
	*fd = -1;
	*ret = p;
	p = STATUS_PAGE_CLOSED;
	return 0;
}

void status_page_done(struct status_page *p)
{
	if (p->map)
		munmap(p->map, STATUS_PAGE_BYTES);
	close_fd(&p->fd_read_only);
	close_fd(&p->fd);
	free(p->free);
	*p = STATUS_PAGE_CLOSED;
}

/* ---- words ---- */

static void wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The count continues through all buffers that a cell is ever given to, so that no two of its words
 * are the same for a long time. */
static uint32_t changed(uint32_t word, uint32_t flags)
{
	return ((word & ~STATUS_PAGE_FLAGS) + STATUS_PAGE_CHANGE) | flags;
}

static void change(struct status_page_cell *cell, uint32_t flags)
{
	uint32_t word = atomic_load_explicit(&cell->word, memory_order_relaxed);

	atomic_store_explicit(&cell->word, changed(word, flags), memory_order_release);
}

/* A cell that was never given, with memory behind it. */
static uint32_t take_new(struct status_page *p)
{
	uint32_t cell = status_page_used(p);

	if (cell == STATUS_PAGE_CELLS || back(p, cell + 1) < 0)
		return STATUS_PAGE_NONE;
	atomic_store(&p->map->used, cell + 1);
	return cell;
}

uint32_t status_page_take(struct status_page *p, uint64_t id)
{
	uint32_t cell = p->n_free ? p->free[--p->n_free] : take_new(p);

	if (cell == STATUS_PAGE_NONE)
		return cell;
	/* In this order: see status_page_read(). */
	atomic_store_explicit(&p->map->cells[cell].id, id, memory_order_relaxed);
	change(&p->map->cells[cell], 0);
	return cell;
}

void status_page_write(struct status_page *p, uint32_t cell, uint32_t flags)
{
	if (cell == STATUS_PAGE_NONE)
		return;
	change(&p->map->cells[cell], flags);
	wake(&p->map->cells[cell].word);
}

void status_page_give(struct status_page *p, uint32_t cell)
{
	if (cell == STATUS_PAGE_NONE)
		return;
	status_page_write(p, cell, STATUS_PAGE_GONE);
	p->free[p->n_free++] = cell;
}

void status_page_begin(struct status_page *p)
{
	atomic_fetch_add(&p->map->generation, 1);
	wake(&p->map->generation);
}

uint32_t status_page_used(const struct status_page *p)
{
	return atomic_load(&p->map->used);
}

uint64_t status_page_id(const struct status_page *p, uint32_t cell)
{
	return atomic_load(&p->map->cells[cell].id);
}
