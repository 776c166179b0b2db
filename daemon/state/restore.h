/* SPDX-License-Identifier: MIT
 *
 * The beginning of a daemon that is not the first: pools, buffers and leases as the journal of the
 * one before tells them, with the fds that were kept.
 */
#ifndef GPUSHM_DAEMON_STATE_RESTORE_H
#define GPUSHM_DAEMON_STATE_RESTORE_H

#include "daemon/catalog/reaper.h"
#include "daemon/pool/pools.h"
#include "daemon/state/serialize.h"

struct restored {
	bool any;		  /* there was a journal, and it was understood */
	struct archive_head head; /* what to go on from */
	uint64_t generation;	  /* of that journal */
	uint32_t buffers, leases; /* that are there again */
	uint32_t dropped;	  /* buffers whose fd is missing, or whose record makes no sense */
	uint32_t ended;		  /* leases whose process has gone meanwhile */
};

/* Fills the catalog, the pools and the reaper from what the store inherited. Whatever can't be
 * restored is left out, with a line in the log. 0; or -ENOMEM, -EMFILE, -ENFILE: then its keeper
 * still has all of it. */
int restore(struct fdstore *store, struct catalog *catalog, struct reaper *reaper,
	    struct pools *pools, struct restored *ret);

#endif
