/* SPDX-License-Identifier: MIT
 *
 * The daemon's log of what has happened to buffers, processes and pools, for programs. Errors,
 * ownership and threads are as gpushm.h says.
 */
#ifndef GPUSHM_EVENTS_H
#define GPUSHM_EVENTS_H

#include <gpushm_records.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Something that has happened is a struct gpushm_logged_event. type: "started" (the daemon),
 * "created", "published", "opened", "closed", "renamed", "replaced", "unlinked", "freed", "dirty",
 * "cleaned", "died" (a holder), "lost", "refused", "disconnected", "suspect", "pool-failed",
 * "pool-recovered", "joined", "dropped", "orphaned", "continued", "suspended", "resumed",
 * "evicted", "restored", "parked", "unparked", "stuck"; gpushmctl(1) describes them. "unknown": a
 * later daemon may have others. */

/* NULL, or all zero but struct_size, means: all events that the daemon has kept. */
struct gpushm_events_options {
	size_t struct_size;  /* sizeof(struct gpushm_events_options) */
	uint64_t after;	     /* events with a higher number; GPUSHM_EVENTS_NEW: none so far */
	uint64_t timeout_ms; /* how long to wait for the first event */
	const char *types;   /* "refused,pool-failed": only these; NULL: all */
};
#define GPUSHM_EVENTS_NEW UINT64_MAX

/* What this user's processes did, what happened to buffers that it may gpushm_stat(), and what
 * concerns everybody; for administrators everything. n is 0 after the timeout. To follow, call it
 * again with `last`: then nothing is missed, also over a restart of the daemon. One that waits gets
 * a reply at most every 20 ms. Asks the daemon. Errors: -EINVAL (types), -EDQUOT (this user waits
 * for too much). */
int gpushm_events(struct gpushm *c, const struct gpushm_events_options *options,
		  struct gpushm_events **ret);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
