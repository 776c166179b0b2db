/* SPDX-License-Identifier: MIT
 *
 * Writing what the next daemon needs to continue, before a client gets its reply: published buffers
 * and their leases become records of the journal, and systemd keeps their fds. A serializer
 * observes the catalog; a new one begins with everything that the catalog has.
 */
#pragma once

#include "daemon/catalog/catalog.h"
#include "daemon/state/fdstore.h"
#include "daemon/state/journal.h"
#include "daemon/util/refusals.h"

struct serializer {
	struct catalog_observer observer;
	struct fdstore *store; /* borrowed */
	struct journal journal;
	bool keeps; /* new records send their fds to systemd; before that it has them already */
	uint32_t live, dead; /* number of records that still say something, and of the others */
};

/* The first record: who the daemon is, and ids above all that it has given. */
struct serialize_head {
	unsigned char daemon[DAEMON_ID_BYTES];
	uint64_t next_buffer, next_lease;
	uint32_t next_pool;
};

/* Begins a journal, which systemd does not keep yet. 0 or -errno. */
int serializer_init(struct serializer *s, struct fdstore *store, uint64_t generation,
		    const struct serialize_head *head);
void serializer_done(struct serializer *s); /* ends the observation; a second call does nothing */

/* All pools, published buffers and their leases. 0 or -errno. */
int serialize_catalog(struct serializer *s, const struct catalog *c);

/* Everything from the journal before has been written: from now on this journal counts. 0 or
 * -errno. */
int serialize_complete(struct serializer *s);

/* When one of these returns 0, the object is in the journal, and systemd has its fds. Else -errno.
 * replaced: the buffer whose name it has taken, or NULL. */
int serialize_pool(struct serializer *s, const struct pool *p);
int serialize_buffer(struct serializer *s, struct buffer *b, const struct buffer *replaced);
int serialize_lease(struct serializer *s, const struct lease *l);

/* 0 or -errno. */
int serialize_refusals(struct serializer *s, struct refusals *r);

int serialize_restarts(struct serializer *s, const struct restarts *r);

/* systemd closes the pool's fd. */
void serialize_forget_pool(struct fdstore *store, const struct pool *p);

/* Lists the journal's fd, and the fds of everything that is in the catalog, by the names that the
 * next daemon looks for. 0 or -ENOMEM. */
int serialize_list_fds(const struct serializer *s, const struct catalog *c, struct fd_list *l);

/* Whether most of the journal is dead, so that it is time for a new one. */
bool serialize_is_stale(const struct serializer *s);
