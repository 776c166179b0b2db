/* SPDX-License-Identifier: MIT
 *
 * The reaper keeps the processes whose connection has closed while they hold leases: suspects. A
 * closed socket proves nothing: a killed process's kernel was seen writing 10 ms after it. The
 * leases end when the pidfd shows that the process is gone.
 */
#pragma once

#include "daemon/catalog/catalog.h"

struct reaper {
	uv_loop_t *loop;	 /* borrowed */
	struct catalog *catalog; /* borrowed */
	struct pidfds pidfds;	 /* of the clients that are connected, and of the suspects */
	struct list suspects;	 /* process::link */
	uint32_t n;
	uint64_t deaths[ROLES]; /* connections whose process ended while they had leases */
	struct turns *turns;	/* borrowed */
	bool ending; /* connections close because the daemon ends, not because clients do */
};

/* 0 or -ENOMEM. */
int reaper_init(struct reaper *r, uv_loop_t *loop, struct catalog *catalog, struct turns *turns);

/* Owns a process whose connection has closed, from now on; frees it at once if it has no lease. The
 * names of the buffers that it was filling are free: at once, or if they are many, in its user's
 * turns. */
void reaper_take(struct reaper *r, struct process *p);

/* Call it periodically: each process that closed its connection REAPER_PATIENCE_S ago, lives and
 * holds leases becomes an event, once. */
#define REAPER_PATIENCE_S 10u
void reaper_tell_suspects(struct reaper *r);

/* The processes that have suspended that buffer, which was evicted, keep its memory: they become
 * suspects for these bytes of the pool, until they end. For pool_expect_freed(). */
void reaper_suspect_away(void *reaper, uint64_t buffer, struct pool *pool, uint64_t bytes);

/* The first suspect behind `after` (NULL: of all) that is the same process as `like`, or NULL.
 * Liars are left out: what they keep can't be reclaimed. */
struct process *reaper_find_same(const struct process *like, const struct process *after);

/* Owns the process of a connection to an earlier daemon; the caller adopts its leases next. */
void reaper_adopt(struct reaper *r, struct process *p);

/* The suspect's client has reconnected and has reclaimed what it still holds: ends the other
 * leases.
 */
void reaper_release(struct reaper *r, struct process *p);

/* At the daemon's end, when no connection is left: frees all suspects. A driver does not get back
 * memory that one of them may still use; it goes with the daemon's process. */
void reaper_done(struct reaper *r);
