/* SPDX-License-Identifier: MIT
 *
 * The status page: shared memory in which clients read, without a call, what has happened to their
 * buffers. Its layout is in proto/status_page.h. It knows ids and flags, not buffers.
 */
#pragma once

#include "proto/status_page.h"

#include <stddef.h>

struct status_page {
	int fd;		  /* owned; writable, and never lent */
	int fd_read_only; /* owned; lent to clients */
	struct status_page_layout *map;
	/* Owned; a stack of free cells with space for all cells, so that giving one back never
	 * fails. The kernel gives memory only for the part that was ever used. */
	uint32_t *free;
	size_t n_free;
	uint32_t backed; /* number of cells that have memory behind them */
};
#define STATUS_PAGE_CLOSED ((struct status_page){ .fd = -1, .fd_read_only = -1 })

/* An empty page. 0 or -errno. */
int status_page_new(struct status_page *ret);

/* A page that an earlier daemon wrote. On success it owns the fd, and no cell is free: the caller
 * gives back the cells of buffers that are gone. 0; -EBADMSG if it is no status page;
 * -EPROTONOSUPPORT if it has another version; -errno. */
int status_page_adopt(int *fd, struct status_page *ret);
void status_page_done(struct status_page *p);

/* A cell for that buffer, without flags, or STATUS_PAGE_NONE if none is left. */
uint32_t status_page_take(struct status_page *p, uint64_t id);

/* Sets the flags of a cell and wakes all that wait for a change of it, also if the flags were the
 * same before. STATUS_PAGE_NONE is allowed. */
void status_page_write(struct status_page *p, uint32_t cell, uint32_t flags);

/* The buffer is gone: the cell says so until it belongs to another buffer. STATUS_PAGE_NONE is
 * allowed. */
void status_page_give(struct status_page *p, uint32_t cell);

/* Wakes all that watch the whole page: a daemon has begun. */
void status_page_begin(struct status_page *p);

/* The number of cells that were ever given, and the id of a cell's last buffer. */
uint32_t status_page_used(const struct status_page *p);
uint64_t status_page_id(const struct status_page *p, uint32_t cell);
