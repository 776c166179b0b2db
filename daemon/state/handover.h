/* SPDX-License-Identifier: MIT
 *
 * What a daemon inherits from the one before, and leaves to the one after: the kept fds, the
 * journal that says what they are, and the board that clients go on reading in between.
 */
#ifndef GPUSHM_DAEMON_STATE_HANDOVER_H
#define GPUSHM_DAEMON_STATE_HANDOVER_H

#include "daemon/catalog/status_page.h"
#include "daemon/ipc/session.h"
#include "daemon/pool/pools.h"
#include "daemon/state/serialize.h"

struct estate {
	struct store store;
	struct slots slots;
	struct board board;	 /* the catalog's, once estate_inherit() has been called */
	struct archive archive;	 /* the catalog's, once estate_inherit() has been called */
	struct service *service; /* borrowed */
	struct pools *pools;	 /* borrowed */
};

/* Takes over the fds that were handed to us. 0 or -errno. */
int estate_open(struct estate *e, struct service *service, struct pools *pools);
void estate_close(struct estate *e);

/* Fills the catalog with what an earlier daemon left, and begins a journal of our own if somebody
 * keeps it. 0 or -errno. */
int estate_inherit(struct estate *e);

/* The pool is in the journal, too. */
void estate_add_pool(struct estate *e, const struct pool *pool);

/* Lists what the program after us goes on from: a journal, and the fds that it speaks of. 0 or
 * -errno. Where no exec follows, estate_go_on() leaves all as it was. */
int estate_list(struct estate *e, struct manifest *m);
void estate_go_on(struct estate *e);

/* Every pool is ready or has failed: looks whether what was inherited is still there. */
void estate_audit(struct estate *e);

/* Now and then: a new journal, when most of the old one is dead. */
void estate_tidy(struct estate *e);

#endif
