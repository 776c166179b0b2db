/* SPDX-License-Identifier: MIT
 *
 * An observer follows what happens to buffers and leases: the journal writes it down, and the
 * requests that wait for a change are woken. It is a member of the object that observes, and stays
 * in the catalog's list until list_drop(). The catalog does not call functions that are NULL.
 */
#pragma once

#include "proto/base/list.h"

struct buffer;
struct lease;
struct process;

enum buffer_event {
	BUFFER_PUBLISHED,
	BUFFER_DIRTIED,	   /* a process died that held it for writing */
	BUFFER_CLEANED,	   /* its owner says that it is not dirty any more */
	BUFFER_MAPPED,	   /* for the first time by another user than its owner */
	BUFFER_UNLINKED,   /* it has lost its name */
	BUFFER_LEASE_OVER, /* of an unlinked buffer: fewer processes may see it */
	BUFFER_FREED
};

enum lease_event { LEASE_GRANTED, LEASE_MOVED, LEASE_ENDED };

struct catalog_observer {
	struct list link; /* catalog::observers */

	/* Called before the status page is written and before a client learns of the event, so that
	 * no client knows something that the next daemon does not know if this one dies in between.
	 * record_lease() returns 0 or -errno; an error refuses LEASE_GRANTED and LEASE_MOVED. */
	void (*record_buffer)(struct catalog_observer *o, struct buffer *b,
			      enum buffer_event event);
	int (*record_lease)(struct catalog_observer *o, const struct lease *l,
			    enum lease_event event);
	/* The process has no lease any more, and is about to be freed. */
	void (*record_process_end)(struct catalog_observer *o, struct process *p);

	/* Called after the status page is written. key: the name that the buffer has or has just
	 * lost; NULL: it was unlinked before. Only after BUFFER_PUBLISHED and BUFFER_CLEANED may
	 * the function change the catalog. */
	void (*on_buffer)(struct catalog_observer *o, const struct buffer *b, const char *key,
			  enum buffer_event event);
};
