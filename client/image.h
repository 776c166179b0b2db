/* SPDX-License-Identifier: MIT
 *
 * A finished table, mapped read-only from its memfd.
 */
#ifndef GPUSHM_CLIENT_IMAGE_H
#define GPUSHM_CLIENT_IMAGE_H

#include "proto/table.h"

#include <sys/types.h>

struct image {
	void *memory; /* NULL: there is none */
	struct table_view view;
};

/* Maps the table that the daemon sent, if it can't change any more: owner, size and seals are
 * checked. fd is lent. 0, -EPROTO, -ENOMEM with gpushm_error() set. O(1). */
int image_map(int fd, uint64_t bytes, uint64_t buffer_bytes, uid_t server, struct image *ret);

/* Maps what the builder holds now. 0 or -errno with gpushm_error() set. */
int image_finish(struct table_builder *b, uint64_t buffer_bytes, struct image *ret,
		 uint64_t *ret_digest);

/* For _cleanup_(). */
void image_done(struct image *i);

#endif
