/* SPDX-License-Identifier: MIT
 *
 * From one daemon to the next: what a daemon adopts at its start and leaves at its end. That is the
 * kept fds, the journal that says what they are, and the status page, which clients read in
 * between.
 */
#pragma once

#include "daemon/catalog/reaper.h"
#include "daemon/pool/pools.h"
#include "daemon/state/serialize.h"

struct handover {
	struct fdstore store;
	struct status_page page;      /* the catalog's from handover_adopt() on */
	struct serializer serializer; /* writes while its journal is open */
	struct catalog *catalog;      /* borrowed, like those below */
	struct reaper *reaper;
	struct pools *pools;
	struct refusals *refusals;
	uint64_t lost_written; /* catalog::restarts.lost, as the journal has it */
	unsigned char *id;     /* the daemon's, DAEMON_ID_BYTES long; a successor keeps it */
};

/* Receives the fds that systemd or the previous program hands over. The catalog, the reaper and the
 * pools are used from handover_adopt() on. 0 or -errno. */
int handover_open(struct handover *h, struct catalog *catalog, struct reaper *reaper,
		  struct pools *pools, struct refusals *refusals,
		  unsigned char id[DAEMON_ID_BYTES]);
void handover_close(struct handover *h);

/* Fills the catalog, the pools and the reaper with what an earlier daemon left, and begins a
 * journal of our own if systemd keeps it. 0 or -errno. */
int handover_adopt(struct handover *h);

/* A pool has been opened: writes it into the journal. */
void handover_add_pool(struct handover *h, const struct pool *pool);

/* Call it periodically (each second): writes the counts of refusals and of lost buffers if they
 * have changed, and a new journal when most of the old one is dead. */
void handover_tidy(struct handover *h);

/* The version of the journal that the program after us must read. Where that is above
 * JOURNAL_VERSION, ret_why says what an older one would lose. */
uint32_t handover_version(const struct handover *h, char *ret_why, size_t size);

/* Lists the fds that the program after us needs, a journal among them. 0 or -errno. If the exec
 * then fails, handover_cancel() undoes it. */
int handover_list(struct handover *h, struct fd_list *l);
void handover_cancel(struct handover *h);

/* The daemon ends: the journal, the status page and the kept memory stay as they are. For the next
 * daemon this end is like any other death. */
void handover_stop(struct handover *h);
