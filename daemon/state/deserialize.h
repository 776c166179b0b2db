/* SPDX-License-Identifier: MIT
 *
 * What was alive at the end of a journal: its records, replayed.
 */
#ifndef GPUSHM_DAEMON_STATE_DESERIALIZE_H
#define GPUSHM_DAEMON_STATE_DESERIALIZE_H

#include "daemon/state/fdstore.h"
#include "journal.pb-c.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

#include <stdbool.h>

/* What the journal says of one id. */
struct item {
	struct list link; /* replay::pools, buffers or leases, in the order of the records */
	struct hashtable_link by_id; /* replay::index */
	uint16_t type;
	uint64_t id;
	ProtobufCMessage *message; /* owned */
};

struct replay {
	struct list pools, buffers, leases;
	struct hashtable index;
	Gpushm__Journal__Daemon *daemon;  /* owned */
	uint64_t next_buffer, next_lease; /* above all ids that it names */
	bool complete;
};

/* Replays the newest journal that the store inherited and that is complete; the others are
 * forgotten. 0 and *ret_generation; -ENOENT where there is none; -ENOMEM. Unless it fails,
 * replay_done() frees it. */
int replay(struct fdstore *store, struct replay *r, uint64_t *ret_generation);
void replay_done(struct replay *r);

#endif
