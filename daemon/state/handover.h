/* SPDX-License-Identifier: MIT
 *
 * What a daemon inherits from the one before, and leaves to the one after: the kept fds, the
 * journal that says what they are, and the board that clients go on reading in between.
 */
#ifndef GPUSHM_DAEMON_STATE_HANDOVER_H
#define GPUSHM_DAEMON_STATE_HANDOVER_H

#include "daemon/catalog/catalog.h"
#include "daemon/catalog/reaper.h"
#include "daemon/pool/pools.h"
#include "daemon/state/serialize.h"

struct handover {
	struct fdstore store;
	struct fd_index slots;
	struct status_page page; /* the catalog's, once handover_adopt() has been called */
	struct archive archive;	 /* the catalog's, once handover_adopt() has been called */
	struct catalog *catalog; /* borrowed */
	struct reaper *reaper;	 /* borrowed */
	struct pools *pools;	 /* borrowed */
	unsigned char *id; /* borrowed; the daemon's, of DAEMON_ID_BYTES: a successor keeps it */
};

/* Receives the fds that systemd or the previous program hands over. The catalog, the reaper and the
 * pools are used from handover_adopt() on. 0 or -errno. */
int handover_open(struct handover *e, struct catalog *catalog, struct reaper *reaper,
		  struct pools *pools, unsigned char id[DAEMON_ID_BYTES]);
void handover_close(struct handover *e);

/* Fills the catalog with what an earlier daemon left, and begins a journal of our own if somebody
 * keeps it. 0 or -errno. */
int handover_adopt(struct handover *e);

/* The pool is in the journal, too. */
void handover_add_pool(struct handover *e, const struct pool *pool);

/* Lists what the program after us goes on from: a journal, and the fds that it speaks of. 0 or
 * -errno. Where no exec follows, handover_cancel() leaves all as it was. */
int handover_list(struct handover *e, struct fd_list *m);
void handover_cancel(struct handover *e);

/* Every pool is ready or has failed: looks whether what was inherited is still there. */
void handover_verify(struct handover *e);

/* Now and then: a new journal, when most of the old one is dead. */
void handover_tidy(struct handover *e);

#endif
