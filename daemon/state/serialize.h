/* SPDX-License-Identifier: MIT
 *
 * The archive: what the next daemon needs to go on, written before a client is told. It turns
 * published buffers and their leases into records of the journal, and has their fds kept.
 */
#ifndef GPUSHM_DAEMON_STATE_SERIALIZE_H
#define GPUSHM_DAEMON_STATE_SERIALIZE_H

#include "daemon/catalog/buffer.h"
#include "daemon/catalog/lease.h"
#include "daemon/state/fd_index.h"
#include "daemon/state/fd_list.h"
#include "daemon/state/journal.h"

struct archive {
	struct fdstore *store;	/* borrowed */
	struct fd_index *slots; /* borrowed */
	bool keeps; /* fds go to the store with their records; else they are there already */
	struct journal journal;
	uint32_t live, dead; /* records that still say something, and those that do not */
};

/* What a restart is to find again; ids above those that were given. */
struct archive_head {
	unsigned char daemon[DAEMON_ID_BYTES];
	uint64_t next_buffer, next_lease;
	uint32_t next_pool;
};

/* A fresh journal, not yet kept. 0 or -errno. */
int archive_init(struct archive *a, struct fdstore *store, struct fd_index *slots,
		 uint64_t generation, const struct archive_head *head);
void archive_done(struct archive *a);

/* Everything that stood in the one before has been written: from now on this journal counts. */
int archive_complete(struct archive *a);

/* Each is in the journal, and the fds with their keeper, when it returns 0. */
int archive_pool(struct archive *a, const struct pool *p);
int archive_buffer(struct archive *a, struct buffer *b);
int archive_lease(struct archive *a, const struct lease *l);

/* A lease that is in the journal already is another connection's from now on. 0 or -errno. */
int archive_move(struct archive *a, const struct lease *l);

/* Whoever keeps its fd lets go of it. */
void archive_forget_pool(struct fdstore *s, const struct pool *p);

/* Something of a buffer has changed that is in the journal already. */
void archive_change(struct archive *a, const struct buffer *b);

/* These can be late without harm: at worst a restart brings back what had ended, until its process
 * has gone. */
void archive_unlink(struct archive *a, const struct buffer *b);
void archive_gone(struct archive *a, struct buffer *b);
void archive_close(struct archive *a, const struct lease *l);

/* The process is gone, or has no lease any more. */
void archive_forget_process(struct archive *a, struct process *p);

/* The fds by the names that the journal's records mean, as the next program looks for them. 0 or
 * -ENOMEM. */
int archive_list(const struct archive *a, struct fd_list *m);
int archive_list_pool(const struct pool *p, struct fd_list *m);
int archive_list_buffer(const struct buffer *b, struct fd_list *m);
int archive_list_process(const struct process *p, struct fd_list *m);

/* More of the journal is dead than alive: time to write a new one. */
bool archive_is_stale(const struct archive *a);

#endif
