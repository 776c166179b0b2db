/* SPDX-License-Identifier: MIT
 *
 * Whether it is worth while to look for something once more before one sleeps. It is where that
 * comes soon; and it is none where looking keeps whoever is to make it from running, or where
 * nobody makes it. After SPIN_MISSES times in a row in vain, one sleeps for the next SPIN_REST.
 */
#ifndef GPUSHM_DAEMON_UTIL_SPIN_H
#define GPUSHM_DAEMON_UTIL_SPIN_H

#include <stdbool.h>

#define SPIN_MISSES 2u
#define SPIN_REST 64u

struct spin {
	unsigned misses; /* in a row */
	unsigned rest;	 /* times to come */
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

#endif
