/* SPDX-License-Identifier: MIT
 *
 * A finished table, read-only: in memory, or still in the memfd that it came in.
 */
#ifndef GPUSHM_CLIENT_BUFFER_IMAGE_H
#define GPUSHM_CLIENT_BUFFER_IMAGE_H

#include "proto/table.h"

#include <stdbool.h>
#include <sys/types.h>

struct image {
	struct table_view view;
	void *memory; /* owned; NULL: there is no table, or it is not in memory */
	bool mapped;  /* what memory is: a mapping, or a copy from malloc() */
	int fd;	      /* owned; -1: it is in memory, or there is none */
	uid_t server; /* who must own the file before it is mapped */
	unsigned looks;
};
#define IMAGE_NONE ((struct image){ .fd = -1 })

static inline bool image_is(const struct image *i)
{
	return i->memory || i->fd >= 0;
}

/* Takes the table that the daemon sent: a small one is copied; of a large one the fd is kept, or it
 * is mapped as image_load() does. *fd is taken or left to the caller. 0, -EPROTO, -ENOMEM with
 * gpushm_error() set. O(1). */
int image_open(int *fd, uint64_t bytes, uint64_t buffer_bytes, uid_t server, struct image *ret);

/* Sees that it is in memory, where it then stays until image_done(). It is mapped if it can't
 * change any more: owner, size and seals are checked. Errors as above. */
int image_load(struct image *i);

/* To be called before each look for a name: many looks are cheaper in memory. Errors as above. */
int image_look(struct image *i);

/* Maps what the builder holds now. 0 or -errno with gpushm_error() set. */
int image_finish(struct table_builder *b, uint64_t buffer_bytes, struct image *ret,
		 uint64_t *ret_digest);

/* For _cleanup_(). */
void image_done(struct image *i);

#endif
