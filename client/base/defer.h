/* SPDX-License-Identifier: MIT
 *
 * Cleanup that waits: what would synchronise a GPU in the middle of somebody's hot section is put
 * on a list of this process, and done later, by Numba's rule. gpushm.h says what users see of it.
 */
#ifndef GPUSHM_CLIENT_BASE_DEFER_H
#define GPUSHM_CLIENT_BASE_DEFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One that waits; a member of what it ends, so that waiting needs no memory. */
struct deferred {
	struct deferred *next; /* defer_queue::first */
	const void *owner;     /* for defer_flush_owner() */
	int device;	       /* whose memory the bytes are */
	uint64_t bytes;
	/* The device's memory in bytes, asked for when the ratio is to be checked. */
	uint64_t (*capacity)(int device);
	/* Ends it; the memory of `d` may be freed. 0, or -errno with gpushm_error() set. Called
	 * without any lock of this room's. */
	int (*run)(struct deferred *d);
};

/* The process's list, in struct state: all zero is an empty one. Under state::defer_lock. */
struct defer_queue {
	struct deferred *first, *last;
	size_t count;
	uint64_t bytes;
	unsigned held; /* sections that are open */
	bool limits_known;
	unsigned max_count;
	double max_ratio;
};

/* Takes it onto the list, and runs all that is there, oldest first, where no section is open and a
 * limit is exceeded. One that fails does not stop the others. 0, or the first -errno. */
int defer_add(struct deferred *d);

/* Runs what belongs to an owner, whoever holds it. */
void defer_flush_owner(const void *owner);

/* Memory, or a limit, has run out: runs all, whoever holds it. Whether there was anything; then it
 * is worth another try. */
bool defer_flush_for_room(void);

#endif
