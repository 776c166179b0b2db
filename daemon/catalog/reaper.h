/* SPDX-License-Identifier: MIT
 *
 * The reaper keeps the processes whose connection has closed while they hold leases: suspects. A
 * closed socket proves nothing (a killed process's kernel was seen writing 10 ms after it); when
 * the pidfd says that the process has gone, its leases end.
 */
#ifndef GPUSHM_DAEMON_CATALOG_REAPER_H
#define GPUSHM_DAEMON_CATALOG_REAPER_H

#include "daemon/catalog/catalog.h"

struct reaper {
	uv_loop_t *loop;	 /* borrowed */
	struct catalog *catalog; /* borrowed */
	struct list suspects;	 /* process::link */
	uint32_t n;
	bool ending; /* connections close because the daemon ends, and not who is at the other end
		      */
};

void reaper_init(struct reaper *r, uv_loop_t *loop, struct catalog *catalog);

/* Takes over a process whose connection has closed. One without leases is freed at once. */
void reaper_take(struct reaper *r, struct process *p);

/* The next suspect that is the same process as `like`, behind `after` (NULL: from the start), or
 * NULL. */
struct process *reaper_find_same(const struct reaper *r, const struct process *like,
				 const struct process *after);

/* A process of an earlier daemon's connection; its leases are still to come. */
void reaper_adopt(struct reaper *r, struct process *p);

/* The client of a suspect is back and has all that it still holds: whatever the suspect has left,
 * ends. */
void reaper_release(struct reaper *r, struct process *p);

/* At the daemon's end: forgets every suspect. Memory that one of them may still use is not given
 * back to the driver as free; it goes with the daemon's process. */
void reaper_done(struct reaper *r);

#endif
