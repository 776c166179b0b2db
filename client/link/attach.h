/* SPDX-License-Identifier: MIT
 *
 * What the daemon gave for a CREATE or an OPEN, checked and taken out of its reply.
 */
#ifndef GPUSHM_CLIENT_LINK_ATTACH_H
#define GPUSHM_CLIENT_LINK_ATTACH_H

#include "client/link/connection.h"

struct attach {
	uint64_t buffer, lease, bytes, allocated_bytes, digest, table_bytes;
	enum gpushm_state state;
	enum gpushm_access access;
	bool dirty;
	uint32_t pool_id, slot; /* slot: on the board, or STATUS_PAGE_NONE */
	bool has_record, is_pool_fd;
	struct pool_info *pool; /* the connection's */
	unsigned char record[RECORD_BYTES];
	int fd;		  /* the memory's; owned; -1 for a mempool */
	int table_fd;	  /* owned; -1: the buffer has no table */
	struct held held; /* the lease, until a buffer has it: a RECLAIM in between names it too */
	struct gpushm *holder; /* where it is listed; NULL: not any more, or not yet */
};
#define ATTACH_NONE ((struct attach){ .fd = -1, .table_fd = -1 })

/* Makes the request, CREATE or OPEN, and takes what its reply brought. Where there is no room, what
 * waits for its cleanup is done, and the request made once more. *ret is ATTACH_NONE before,
 * stays where it is, and ends with attach_done() whatever is returned; the lease is the caller's. 0
 * or -errno with gpushm_error() set. */
int attach_call(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret);

/* From now on `to` stands for the lease. */
void attach_hand_over(struct attach *a, struct held *to);

/* Closes the fds; the lease is another matter. For _cleanup_(). */
void attach_done(struct attach *a);

/* Leaves the lease to the connection for as long as that lasts: its memory could not be unmapped.
 */
void attach_strand(struct gpushm *c, struct held *held);

/* Ends a lease, which is listed no more. Its memory must be unmapped. 0 or -errno. */
int attach_close_lease(struct gpushm *c, struct held *held);

#endif
