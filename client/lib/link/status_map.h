/* SPDX-License-Identifier: MIT
 *
 * The daemon's status page, mapped into this process, and waiting for a change on it.
 */
#pragma once

#include "proto/status_page.h"

#include <stddef.h>
#include <sys/types.h>

struct status_map {
	struct status_map *next; /* an earlier daemon's page: buffers may still read it */
	const struct status_page_layout *page;
	dev_t dev;
	ino_t ino;
};

/* Maps the page behind the fd and puts it first in *pages, unless it is there already. The fd stays
 * the caller's. 0; -EPROTO where it is not a status page of that server; -errno; with
 * gpushm_error() set. */
int status_map_add(int fd, uid_t server, struct status_map **pages);
void status_map_free(struct status_map *pages);

/* NULL where there is no page, or no such cell on it. */
static inline const struct status_page_cell *status_map_cell(const struct status_map *pages,
							     uint32_t index)
{
	return pages && index < STATUS_PAGE_CELLS ? &pages->page->cells[index] : NULL;
}

/* Sleeps until the cell's word is not `seen`, at most so long; may return early. */
void status_map_sleep(const struct status_page_cell *cell, uint32_t seen, uint64_t ms);
