/* SPDX-License-Identifier: MIT
 *
 * Waiters: requests that wait, with a deadline, until a name is published or until something that
 * they watch changes. A waiter is a member of its session, so waiting for a name allocates nothing;
 * the session owns the list of what is watched. A waiter that is woken is work of its user, so that
 * a change which concerns thousands of waiters does not hold up other users.
 */
#pragma once

#include "daemon/catalog/catalog.h"
#include "daemon/catalog/private_names.h"
#include "daemon/catalog/turns.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

#include <uv.h>

#define WAITER_EVENTS_MS 20u /* between two looks for events */

struct waiter;

/* A watched name or buffer, and the state that the client knows. */
struct watched {
	struct hashtable_link link; /* waiters::watched, while the request waits */
	size_t first;		    /* the first entry that watches the same; only that is linked */
	struct waiter *waiter;
	const char *key; /* borrowed; NULL: the buffer with that id */
	uint64_t id;
	uint64_t seen_id; /* for a name: the buffer it named then; 0: none */
	uint32_t seen;	  /* its word (proto/status_page.h) */
};

struct waiter {
	struct list link;	 /* waiters::all; the session initialises it */
	struct waiters *waiters; /* borrowed */
	uint64_t deadline_ms;	 /* of the loop's clock; UINT64_MAX: none */
	struct list event_link;	 /* waiters::followers; the session initialises it */
	char key[KEY_MAX + 1];	 /* the name it waits for; "": it watches */
	bool while_filling;	 /* also woken when the name becomes free */
	struct watched *watched; /* borrowed; as many as n_watched */
	size_t n_watched;
	struct charge charge;	      /* for what it watches */
	struct hashtable_link by_key; /* waiters::names */
	struct work work;	      /* it has been woken */
	struct account *account;      /* borrowed: its user's */
	struct buffer *published;     /* stays until on_wake() returns, even if it is unlinked */
	/* Either leaves the waiter where it is, or replies and then calls waiters_drop(). */
	void (*on_wake)(struct waiter *w, bool timed_out);
};

struct waiters {
	struct catalog_observer observer; /* in the catalog until waiters_done() */
	struct list all;
	uint32_t n;
	struct hashtable names;	  /* waiter::by_key */
	struct hashtable watched; /* by key, and by id */
	struct list followers;	  /* waiter::event_link: they wait for an event */
	uv_timer_t events;	  /* runs from an event until the followers look */
	uint64_t earliest_ms;	  /* when the timer fires; UINT64_MAX: never */
	uv_timer_t timer;
	struct catalog *catalog; /* borrowed */
	struct turns *turns;	 /* borrowed */
};

/* Observes the catalog: a publication, a rename to it and a clean wake all that wait for that name,
 * and each gets that buffer, even if it loses its name before their turn comes. Any change of a
 * name or a buffer wakes those that watch it, once for all changes until their turn. 0 or -ENOMEM.
 */
int waiters_init(struct waiters *ws, uv_loop_t *loop, struct catalog *catalog, struct turns *turns);
void waiters_done(struct waiters *ws); /* the loop must run once more to close the timer */

/* Finds the entries that watch the same. Returns how many different ones there are. */
size_t waiters_join_same(struct watched *all, size_t n);

/* account: of the user for whom the request waits; it lives longer. wait_ms: UINT64_MAX waits for
 * ever. */
void waiters_insert(struct waiters *ws, struct waiter *w, struct account *account,
		    uint64_t wait_ms);
void waiters_drop(struct waiters *ws, struct waiter *w); /* a waiter in no list is allowed */

/* The waiter, which is inserted, is also woken soon after an event. */
void waiters_follow_events(struct waiters *ws, struct waiter *w);

/* A process is asked to suspend all, or is not any more. */
void waiters_tell_wanted(struct waiters *ws);

/* An event has happened: those that wait for one look for it within WAITER_EVENTS_MS. */
void waiters_tell_event(struct waiters *ws);
