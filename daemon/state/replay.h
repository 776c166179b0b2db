/* SPDX-License-Identifier: MIT
 *
 * Replaying a journal: its records one after the other, and what is alive at its end.
 */
#pragma once

#include "daemon/state/fdstore.h"
#include "journal.pb-c.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

/* What the journal says of one id. */
struct item {
	struct list link;	     /* one of replay's lists, in the order of the records */
	struct hashtable_link by_id; /* replay::by_id */
	uint16_t type;
	uint64_t id;
	ProtobufCMessage *message; /* owned */
};

struct replay {
	struct list pools, buffers, leases, streams, readers; /* item::link */
	struct hashtable by_id;
	Gpushm__Journal__Daemon *daemon;     /* owned */
	Gpushm__Journal__Refusals *refusals; /* owned; NULL: the journal has none */
	Gpushm__Journal__Restarts *restarts; /* likewise */
	uint64_t next_buffer, next_lease;    /* above all ids that the records name */
	bool complete;
};

/* Replays the newest of the received journals that is complete; systemd forgets the others. 0;
 * -ENOENT if there is none; -ENOMEM. After 0 replay_done() frees it. */
int replay(struct fdstore *store, struct replay *r, uint64_t *ret_generation);
void replay_done(struct replay *r);
