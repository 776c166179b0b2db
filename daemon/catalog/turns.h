/* SPDX-License-Identifier: MIT
 *
 * Turns: the loop serves users in turn, not connections. An event only puts work into the queue of
 * its user's account; the work is done after the loop has looked at all its events. The user whose
 * work has taken the least time is next, so a user waits for one piece of work of each other user,
 * however much the others have sent.
 */
#pragma once

#include "daemon/catalog/account.h"

#include <uv.h>

/* A piece of work, a member of what it works on: a peer with a request, for example. It takes a
 * bounded time. */
struct work {
	struct list link; /* account::work; work_init() */
	/* Called when it is in no queue. Returns whether the rest of the work is to be done before
	 * the user's other work; the object may be gone otherwise. */
	bool (*run)(struct work *w);
};

struct turns {
	struct list users; /* account::turn_link: those with work, the one who is next first */
	bool behind;	   /* a round ended with work left */
	uint64_t floor;	   /* ns: account::served_ns of the user who was served last */
	uint64_t now;	   /* CLOCK_MONOTONIC: when the piece of work began that is being done */
	uv_check_t check;  /* serves after each look for events */
	uv_idle_t more; /* active while work is left: the loop looks for events, but never waits */
};

void turns_init(struct turns *t, uv_loop_t *loop); /* never fails */

/* Drops all work and closes the handles; the loop must run once more. */
void turns_done(struct turns *t);

static inline void work_init(struct work *w, bool (*run)(struct work *w))
{
	list_init(&w->link);
	w->run = run;
}

static inline bool work_is_queued(const struct work *w)
{
	return !list_empty(&w->link);
}

/* Queues work of a user behind the other work of that user; does nothing if it is queued. The
 * account must live at least as long as the work is queued or runs. */
void turns_add(struct turns *t, struct account *a, struct work *w);

/* Also for work that is in no queue. */
static inline void work_drop(struct work *w)
{
	list_drop(&w->link);
}
