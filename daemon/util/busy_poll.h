/* SPDX-License-Identifier: MIT
 *
 * Busy-polling: a loop or a thread looks for work a little longer before it sleeps. To be woken
 * takes some microseconds, more on a virtual machine: as long as a request or a small allocation.
 *
 * Polling costs time when the event does not come soon, or when polling takes the processor away
 * from the process that makes the event. struct spin finds that out: after SPIN_MISSES misses in a
 * row, the next SPIN_REST times are skipped.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define SPIN_MISSES 2u
#define SPIN_REST 64u
#define BUSY_POLL_BURST_NS 1000000u

struct spin {
	unsigned misses; /* in a row */
	unsigned rest;	 /* times to skip */
};

static inline bool spin_may(struct spin *s)
{
	if (s->rest == 0)
		return true;
	s->rest--;
	return false;
}

static inline void spin_hit(struct spin *s)
{
	s->misses = 0;
}

static inline void spin_miss(struct spin *s)
{
	if (++s->misses < SPIN_MISSES)
		return;
	s->misses = 0;
	s->rest = SPIN_REST;
}

/* A loop's. All functions are for the loop's thread. */
struct busy_poll {
	uv_idle_t idle;	      /* active while the loop polls and does not wait */
	uint64_t until, last; /* of uv_hrtime() */
	struct spin spin;
	bool allowed; /* there is more than one processor */
};

/* The caller closes b->idle. */
void busy_poll_init(struct busy_poll *b, uv_loop_t *loop);

/* Polls for that many ns from now, or until busy_poll_end(). 0 changes nothing. */
void busy_poll_for(struct busy_poll *b, uint64_t ns);

/* The event has come. */
void busy_poll_end(struct busy_poll *b);

/* An event has come. If the one before came less than BUSY_POLL_BURST_NS ago, polls for the next.
 * Returns the time, of CLOCK_MONOTONIC. */
uint64_t busy_poll_in_burst(struct busy_poll *b, uint64_t ns);
