/* SPDX-License-Identifier: MIT
 *
 * A finished table, read-only: in memory, or still in the memfd that it came in.
 */
#pragma once

#include "proto/table.h"

#include <stdbool.h>
#include <sys/types.h>

struct image {
	struct table_view view;
	void *memory; /* owned; NULL: there is no table, or it is not in memory */
	bool mapped;  /* memory is a mapping; else it is from malloc() */
	int fd;	      /* owned; -1: it is in memory, or there is none */
	uid_t server; /* who must own the file before it is mapped */
	unsigned lookups;
};
#define IMAGE_NONE ((struct image){ .fd = -1 })

static inline bool image_is(const struct image *i)
{
	return i->memory || i->fd >= 0;
}

/* Takes the table that the daemon sent: copies a small one; keeps the fd of a large one, or maps it
 * as image_load() does. *fd is taken or stays the caller's. 0, -EPROTO, -ENOMEM with gpushm_error()
 * set. O(1). */
int image_open(int *fd, uint64_t bytes, uint64_t buffer_bytes, uid_t server, struct image *ret);

/* Brings the table into memory, where it stays until image_done(). Checks owner, size and seals
 * before it maps the file. Errors as above. */
int image_load(struct image *i);

/* Call this before each lookup of a name: many lookups are cheaper in memory. Errors as above. */
int image_lookup(struct image *i);

/* Maps the table that the builder has now. 0 or -errno with gpushm_error() set. */
int image_finish(struct table_builder *b, uint64_t buffer_bytes, struct image *ret,
		 uint64_t *ret_digest);

/* For _cleanup_(). */
void image_done(struct image *i);
