/* SPDX-License-Identifier: MIT
 *
 * The board: where clients read, without a call, what has happened to their buffers. Its layout is
 * proto/status_page.h's. It knows ids and flags, not buffers.
 */
#ifndef GPUSHM_DAEMON_CATALOG_STATUS_PAGE_H
#define GPUSHM_DAEMON_CATALOG_STATUS_PAGE_H

#include "proto/status_page.h"

#include <stdbool.h>
#include <stddef.h>

struct status_page {
	int fd;		  /* owned; writable, and never lent */
	int fd_read_only; /* owned; what clients are lent */
	struct status_page_layout *map;
	uint32_t *free; /* owned; a stack of those given back; room for all that were ever given */
	size_t n_free, room;
	uint32_t backed; /* slots that have memory behind them */
};
#define STATUS_PAGE_CLOSED ((struct status_page){ .fd = -1, .fd_read_only = -1 })

/* An empty one. 0 or -errno. */
int status_page_new(struct status_page *ret);

/* One that an earlier daemon wrote; the fd is taken over on success, and *ret has no free slot yet:
 * whoever knows which ids are alive gives back the others. 0; -EBADMSG for what is no board;
 * -EPROTONOSUPPORT for one of another version; -errno. */
int status_page_adopt(int *fd, struct status_page *ret);
void status_page_done(struct status_page *b);

/* A slot for that buffer, without any flag, or STATUS_PAGE_NONE where there is none left. */
uint32_t status_page_take(struct status_page *b, uint64_t id);

/* The flags of a slot from now on; who waits for a change is woken, also where they are what they
 * were. STATUS_PAGE_NONE is allowed. */
void status_page_write(struct status_page *b, uint32_t slot, uint32_t flags);

/* The buffer has gone: its slot says so, until it is another one's. STATUS_PAGE_NONE is allowed. */
void status_page_give(struct status_page *b, uint32_t slot);

/* Tells whoever watches the whole board that a daemon has begun. */
void status_page_begin(struct status_page *b);

/* The slots that were ever given, and whose each was last. */
uint32_t status_page_used(const struct status_page *b);
uint64_t status_page_id(const struct status_page *b, uint32_t slot);

#endif
