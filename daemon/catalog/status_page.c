/* SPDX-License-Identifier: MIT
 *
 * A memfd as pool/host.c makes them: its size is sealed, its mode keeps everybody else from opening
 * it for writing, and what is lent is an fd that was opened read-only. It is STATUS_PAGE_BYTES long
 * from the start and gets memory as it is used, with fallocate(), so that writing to it never ends
 * in a SIGBUS.
 *
 * A slot is one buffer's until that has gone, which is after its last lease; so who has a lease
 * never finds another buffer there, unless the lease was lost with the daemon. Then the id tells.
 */
#include "daemon/catalog/status_page.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
#define STEP_BYTES 4096u /* of memory at a time */

/* ---- the file ---- */

static size_t end_of(uint32_t slots)
{
	return sizeof(struct status_page_layout) + (size_t)slots * sizeof(struct status_page_cell);
}

static int back(struct status_page *b, uint32_t slots)
{
	size_t bytes = (end_of(slots) + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;

	if (slots <= b->backed)
		return 0;
	if (fallocate(b->fd, 0, 0, (off_t)bytes) < 0)
		return -errno;
	b->backed = (uint32_t)((bytes - sizeof(struct status_page_layout)) /
			       sizeof(struct status_page_cell));
	return 0;
}

static int open_both(struct status_page *b)
{
	char path[32];
	void *map;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", b->fd);
	b->fd_read_only = open(path, O_RDONLY | O_CLOEXEC);
	if (b->fd_read_only < 0)
		return -errno;
	map = mmap(NULL, STATUS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	b->map = map;
	return 0;
}

static int make_room(struct status_page *b, uint32_t slots)
{
	size_t room = b->room ? b->room : 64;
	uint32_t *wider;

	if (slots <= b->room)
		return 0;
	while (room < slots)
		room *= 2;
	wider = reallocarray(b->free, room, sizeof(*wider));
	if (!wider)
		return -ENOMEM;
	b->free = wider;
	b->room = room;
	return 0;
}

int status_page_new(struct status_page *ret)
{
	_cleanup_(status_page_done) struct status_page b = STATUS_PAGE_CLOSED;
	int r;

	b.fd = memfd_create("gpushm-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (b.fd < 0 || ftruncate(b.fd, STATUS_PAGE_BYTES) < 0 || fchmod(b.fd, 0400) < 0 ||
	    fcntl(b.fd, F_ADD_SEALS, SEALS) < 0)
		return -errno;
	r = back(&b, 1);
	if (r == 0)
		r = open_both(&b);
	if (r < 0)
		return r;
	b.map->magic = STATUS_PAGE_MAGIC;
	b.map->version = STATUS_PAGE_VERSION;
	*ret = b;
	b = STATUS_PAGE_CLOSED;
	return 0;
}

static int check(struct status_page *b)
{
	if (b->map->magic != STATUS_PAGE_MAGIC || status_page_used(b) > STATUS_PAGE_CELLS)
		return -EBADMSG;
	return b->map->version == STATUS_PAGE_VERSION ? 0 : -EPROTONOSUPPORT;
}

int status_page_adopt(int *fd, struct status_page *ret)
{
	_cleanup_(status_page_done) struct status_page b = STATUS_PAGE_CLOSED;
	struct stat st;
	int seals = fcntl(*fd, F_GET_SEALS), r;

	if (fstat(*fd, &st) < 0)
		return -errno;
	if (seals < 0 || (seals & SEALS) != SEALS || st.st_size != STATUS_PAGE_BYTES)
		return -EBADMSG;
	b.fd = *fd;
	r = back(&b, 1);
	if (r == 0)
		r = open_both(&b);
	if (r == 0)
		r = check(&b);
	if (r == 0)
		r = back(&b, status_page_used(&b));
	if (r == 0)
		r = make_room(&b, status_page_used(&b));
	if (r < 0) {
		b.fd = -1; /* the caller's still */
		return r;
	}
	*fd = -1;
	*ret = b;
	b = STATUS_PAGE_CLOSED;
	return 0;
}

void status_page_done(struct status_page *b)
{
	if (b->map)
		munmap(b->map, STATUS_PAGE_BYTES);
	close_fd(&b->fd_read_only);
	close_fd(&b->fd);
	free(b->free);
	*b = STATUS_PAGE_CLOSED;
}

/* ---- words ---- */

static void wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The count goes on through all buffers that a slot is ever given to, so that no two of its words
 * are the same for a long time. */
static uint32_t changed(uint32_t word, uint32_t flags)
{
	return ((word & ~STATUS_PAGE_FLAGS) + STATUS_PAGE_CHANGE) | flags;
}

static void change(struct status_page_cell *slot, uint32_t flags)
{
	uint32_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);

	atomic_store_explicit(&slot->word, changed(word, flags), memory_order_release);
}

/* One that was never given, with memory behind it and room to take it back. */
static uint32_t take_fresh(struct status_page *b)
{
	uint32_t slot = status_page_used(b);

	if (slot == STATUS_PAGE_CELLS || back(b, slot + 1) < 0 || make_room(b, slot + 1) < 0)
		return STATUS_PAGE_NONE;
	atomic_store(&b->map->used, slot + 1);
	return slot;
}

uint32_t status_page_take(struct status_page *b, uint64_t id)
{
	uint32_t slot = b->n_free ? b->free[--b->n_free] : take_fresh(b);

	if (slot == STATUS_PAGE_NONE)
		return slot;
	/* In this order: see status_page_read(). */
	atomic_store_explicit(&b->map->cells[slot].id, id, memory_order_relaxed);
	change(&b->map->cells[slot], 0);
	return slot;
}

void status_page_write(struct status_page *b, uint32_t slot, uint32_t flags)
{
	if (slot == STATUS_PAGE_NONE)
		return;
	change(&b->map->cells[slot], flags);
	wake(&b->map->cells[slot].word);
}

void status_page_give(struct status_page *b, uint32_t slot)
{
	if (slot == STATUS_PAGE_NONE)
		return;
	status_page_write(b, slot, STATUS_PAGE_GONE);
	b->free[b->n_free++] = slot;
}

void status_page_begin(struct status_page *b)
{
	atomic_fetch_add(&b->map->generation, 1);
	wake(&b->map->generation);
}

uint32_t status_page_used(const struct status_page *b)
{
	return atomic_load(&b->map->used);
}

uint64_t status_page_id(const struct status_page *b, uint32_t slot)
{
	return atomic_load(&b->map->cells[slot].id);
}
