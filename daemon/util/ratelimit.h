/* SPDX-License-Identifier: MIT
 *
 * How many lines of the log a user may cause: what a client does wrong is its own doing, and must
 * not fill a disk or hide what others say.
 */
#ifndef GPUSHM_DAEMON_UTIL_RATELIMIT_H
#define GPUSHM_DAEMON_UTIL_RATELIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RATELIMIT_LINES 5u    /* of a user ... */
#define RATELIMIT_SECONDS 60u /* ... in so long, from the first of them */
#define RATELIMIT_USERS 64u   /* that are remembered at once */

struct throttled {
	uid_t uid;
	uint64_t since_ns;
	uint32_t written, left_out;
};

struct ratelimit {
	struct throttled users[RATELIMIT_USERS];
	size_t n;
};

/* Whether a line of that user may be written now; it is counted, written or not. now_ns:
 * CLOCK_MONOTONIC. A zeroed throttle has seen nobody. */
bool ratelimit_pass(struct ratelimit *t, uid_t uid, uint64_t now_ns);

/* Now and then: logs how many lines of whom were left out, once their time is over. */
void ratelimit_settle(struct ratelimit *t, uint64_t now_ns);

#endif
