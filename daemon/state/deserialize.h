/* SPDX-License-Identifier: MIT
 *
 * Adopting what an earlier daemon left: everything that was alive at the end of its journal is made
 * again from its record and its kept fds, pools before buffers before leases.
 */
#ifndef GPUSHM_DAEMON_STATE_DESERIALIZE_H
#define GPUSHM_DAEMON_STATE_DESERIALIZE_H

#include "daemon/catalog/reaper.h"
#include "daemon/pool/pools.h"
#include "daemon/state/serialize.h"

struct adopted {
	bool any;		    /* there was a journal that could be read */
	struct serialize_head head; /* to continue from */
	uint64_t generation;	    /* of that journal */
	uint32_t buffers, leases;
	uint32_t dropped; /* buffers whose fd is missing, or whose record makes no sense */
	uint32_t ended;	  /* leases whose process is gone */
};

/* Fills the catalog, the pools and the reaper. What can't be adopted is left out, with a line in
 * the log. 0; or -ENOMEM, -EMFILE, -ENFILE: then systemd still has everything. */
int deserialize(struct fdstore *store, struct catalog *catalog, struct reaper *reaper,
		struct pools *pools, struct adopted *ret);

#endif
