/* SPDX-License-Identifier: MIT
 *
 * The reply to CREATE and OPEN, checked and taken over, and the CLOSE of the lease that it gave.
 */
#ifndef GPUSHM_CLIENT_LINK_ATTACH_H
#define GPUSHM_CLIENT_LINK_ATTACH_H

#include "client/link/connection.h"

struct attach {
	uint64_t buffer, bytes, allocated_bytes, digest, table_bytes;
	enum gpushm_state state;
	enum gpushm_access access;
	bool dirty;
	uint32_t pool_id, cell; /* cell: index on the status page, or STATUS_PAGE_NONE */
	bool has_record, is_pool_fd;
	struct pool_info *pool; /* the connection's */
	unsigned char record[RECORD_BYTES];
	int fd;		       /* the memory's; owned; -1 for a mempool */
	int table_fd;	       /* owned; -1: the buffer has no table */
	struct lease lease;    /* until a buffer has it: a RECLAIM before that must name it */
	struct gpushm *holder; /* whose list the lease is in; NULL: in none */
};
#define ATTACH_NONE ((struct attach){ .fd = -1, .table_fd = -1 })

/* Makes the request, a CREATE or an OPEN, and takes over what its reply brought. Where there is no
 * space, runs the deferred cleanup and makes the request once more. *ret is ATTACH_NONE before,
 * does not move, and must be passed to attach_done() whatever this returns; the lease is the
 * caller's to close. 0 or -errno with gpushm_error() set. */
int attach_call(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret);

/* Moves the lease to `to`. */
void attach_move_lease(struct attach *a, struct lease *to);

/* Closes the fds, not the lease. For _cleanup_(). */
void attach_done(struct attach *a);

/* Leaves the lease with the connection until that ends: its memory could not be unmapped. */
void attach_keep_lease(struct gpushm *c, struct lease *l);

/* Takes the lease out of the connection's list and closes it. Its memory must be unmapped. 0 or
 * -errno. */
int attach_close_lease(struct gpushm *c, struct lease *l);

#endif
