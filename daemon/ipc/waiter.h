/* SPDX-License-Identifier: MIT
 *
 * Waiters: requests that wait, with a deadline, until a name is published or until something that
 * they watch changes. A waiter is a member of its session, so waiting for a name allocates nothing;
 * the session owns the list of what is watched.
 */
#pragma once

#include "daemon/catalog/catalog.h"
#include "daemon/catalog/private_names.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

#include <uv.h>

struct waiter;

/* A watched name or buffer, and the state that the client knows. */
struct watched {
	struct hashtable_link link; /* waiters::watched, while the request waits */
	struct waiter *waiter;
	const char *key; /* borrowed; NULL: the buffer with that id */
	uint64_t id;
	uint64_t seen_id; /* for a name: the buffer it named then; 0: none */
	uint32_t seen;	  /* its word (proto/status_page.h) */
};

struct waiter {
	struct list link;	 /* waiters::all; the session initialises it */
	uint64_t deadline_ms;	 /* of the loop's clock; UINT64_MAX: none */
	char key[KEY_MAX + 1];	 /* the name it waits for; "": it watches */
	struct watched *watched; /* borrowed; as many as n_watched */
	size_t n_watched;
	struct charge charge; /* for them */
	bool changed;	      /* something that it watches has changed */
	void (*on_wake)(struct waiter *w, bool timed_out); /* called when it is in no list */
};

struct waiters {
	struct catalog_observer observer; /* in the catalog until waiters_done() */
	struct list all;
	uint32_t n;
	struct hashtable watched; /* by key, and by id */
	bool changed;		  /* waiter::changed is set for one of them */
	uv_timer_t timer;	  /* fires at the earliest deadline, or at once */
};

/* Observes the catalog: a publication and a clean wake all that wait for that name. Those that
 * watch a name or a buffer wake in the loop's next turn after any change of it, once for all
 * changes until then. 0 or -ENOMEM. */
int waiters_init(struct waiters *ws, uv_loop_t *loop, struct catalog *catalog);
void waiters_done(struct waiters *ws); /* the loop must run once more to close the timer */

/* wait_ms: UINT64_MAX waits for ever. */
void waiters_insert(struct waiters *ws, struct waiter *w, uint64_t wait_ms);
/* Only from on_wake(): continues to wait, with the same deadline. */
void waiters_resume(struct waiters *ws, struct waiter *w);
void waiters_drop(struct waiters *ws, struct waiter *w); /* a waiter in no list is allowed */
