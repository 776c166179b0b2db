/* SPDX-License-Identifier: MIT
 *
 * Requests that wait for a name to be published, with a deadline. A waiter is a member of the
 * session whose one request it is, so waiting costs no memory.
 */
#ifndef GPUSHM_DAEMON_WAITER_H
#define GPUSHM_DAEMON_WAITER_H

#include "daemon/naming.h"
#include "proto/list.h"

#include <uv.h>

struct waiter {
	struct list link;     /* waiters::all; initialised by waiter_init() */
	uint64_t deadline_ms; /* of the loop's clock; UINT64_MAX: none */
	char key[KEY_MAX + 1];
	void (*on_wake)(struct waiter *w, bool timed_out); /* it is in no list any more */
};

struct waiters {
	struct list all;
	uint32_t n;
	uv_timer_t timer; /* armed for the earliest deadline */
};

void waiters_init(struct waiters *ws, uv_loop_t *loop);
void waiters_done(struct waiters *ws); /* the loop must run once more to close the timer */

void waiter_init(struct waiter *w);

/* wait_ms: UINT64_MAX waits for ever. */
void waiters_insert(struct waiters *ws, struct waiter *w, uint64_t wait_ms);
/* From on_wake() alone: what it waits for has not come after all, and its deadline stands. */
void waiters_resume(struct waiters *ws, struct waiter *w);
void waiters_drop(struct waiters *ws, struct waiter *w); /* harmless if it is in none */

/* Wakes all who wait for that key. */
void waiters_wake(struct waiters *ws, const char *key);

#endif
