/* SPDX-License-Identifier: MIT
 *
 * Requests that wait, with a deadline: for a name to be published, or for a change of anything that
 * they watch. A waiter is a member of the session whose one request it is, so waiting for a name
 * costs no memory; what is watched is a list that the session owns.
 */
#ifndef GPUSHM_DAEMON_IPC_WAITER_H
#define GPUSHM_DAEMON_IPC_WAITER_H

#include "daemon/catalog/private_names.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

#include <uv.h>

struct waiter;

/* A name, or a buffer, and what the client was told of it last. */
struct watched {
	struct hashtable_link link; /* waiters::watched, while it is waited for */
	struct waiter *waiter;
	const char *key; /* borrowed; NULL: the buffer with that id */
	uint64_t id;
	uint64_t seen_id; /* of a name: the buffer that it meant; 0: none */
	uint32_t seen;	  /* its word (proto/status_page.h) */
};

struct waiter {
	struct list link;	 /* waiters::all; initialised by waiter_init() */
	uint64_t deadline_ms;	 /* of the loop's clock; UINT64_MAX: none */
	char key[KEY_MAX + 1];	 /* "": it watches */
	struct watched *watched; /* borrowed; as many as n_watched */
	size_t n_watched;
	bool stirred; /* something that it watches has changed */
	void (*on_wake)(struct waiter *w, bool timed_out); /* it is in no list any more */
};

struct waiters {
	struct list all;
	uint32_t n;
	struct hashtable watched; /* by key, and by id */
	bool stirred;		  /* one of them is */
	uv_timer_t timer;	  /* armed for the earliest deadline, or for now */
};

/* 0 or -ENOMEM. */
int waiters_init(struct waiters *ws, uv_loop_t *loop);
void waiters_done(struct waiters *ws); /* the loop must run once more to close the timer */

void waiter_init(struct waiter *w);

/* wait_ms: UINT64_MAX waits for ever. */
void waiters_insert(struct waiters *ws, struct waiter *w, uint64_t wait_ms);
/* From on_wake() alone: what it waits for has not come after all, and its deadline stands. */
void waiters_resume(struct waiters *ws, struct waiter *w);
void waiters_drop(struct waiters *ws, struct waiter *w); /* harmless if it is in none */

/* Wakes all who wait for that key. */
void waiters_wake(struct waiters *ws, const char *key);

/* Something has happened to the buffer of that id, which has or had that key; NULL: it has none any
 * more. Whoever watches one of the two is woken in the loop's next turn, and once for all that has
 * happened until then. */
void waiters_stir(struct waiters *ws, const char *key, uint64_t id);

#endif
