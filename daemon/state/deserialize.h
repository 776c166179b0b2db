/* SPDX-License-Identifier: MIT
 *
 * Adopting what an earlier daemon left: everything that was alive at the end of its journal is made
 * again from its record and its kept fds, pools before buffers before leases.
 */
#pragma once

#include "daemon/catalog/reaper.h"
#include "daemon/pool/pools.h"
#include "daemon/state/fdstore.h"
#include "daemon/util/refusals.h"

/* Fills the catalog, the pools and the reaper, and continues with the earlier daemon's id and above
 * its other ids. What can't be adopted is left out, with a line in the log. 0 and the generation of
 * its journal, which stays unchanged if there is none; or -ENOMEM, -EMFILE, -ENFILE: then systemd
 * still has everything. */
int deserialize(struct fdstore *store, struct catalog *catalog, struct reaper *reaper,
		struct pools *pools, struct refusals *refusals, unsigned char id[DAEMON_ID_BYTES],
		uint64_t *ret_generation);

/* Is the memory of adopted buffers still there? A GPU that was reset, or that nobody had open
 * meanwhile, has lost it, and the kept fds do not show that. The driver knows, once it has started;
 * until its result is there, the daemon serves everything as it is. To be called once, when every
 * pool is ready or has failed. Later calls catalog_memory_lost() for buffers whose memory is gone.
 * Both must outlive the pools' workers. See verify.c. */
void verify_start(struct pools *pools, struct catalog *catalog);
