/* SPDX-License-Identifier: MIT
 *
 * Deferred cleanup: what would synchronise a GPU in the middle of a hot section goes onto a list of
 * this process and is done later, by Numba's rule. gpushm_cleanup.h says what users see of
 * it.
 */
#pragma once

#include "client/lib/base/process.h"

#include <stdbool.h>
#include <stdint.h>

/* A member of the object that it ends, so that deferring needs no memory. */
struct deferred {
	struct deferred *next; /* defer_queue::first */
	const void *owner;     /* for defer_flush_owner() */
	int device;	       /* whose memory the bytes are */
	uint64_t bytes;
	/* The device's memory in bytes, asked for when the ratio is to be checked. */
	uint64_t (*capacity)(int device);
	/* Ends the object; may free the memory of `d`. 0, or -errno with gpushm_error() set. Called
	 * without the list's lock. */
	int (*run)(struct deferred *d);
};

/* Appends d to the list. Where no section is open and a limit is exceeded, runs the whole list,
 * oldest first. A failure does not stop the others. 0, or the first -errno. */
int defer_add(struct deferred *d);

/* Runs what belongs to an owner, in open sections too. */
void defer_flush_owner(const void *owner);

/* Whether the list is empty. Takes no lock, since mostly it is. */
static inline bool defer_is_empty(void)
{
	struct process *p = process();

	return !p || p->deferred.count == 0;
}

/* Memory, or a limit, is exhausted: runs the whole list, in open sections too. True: it was not
 * empty, so that another try is worthwhile. */
bool defer_flush_for_space(void);
