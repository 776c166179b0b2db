/* SPDX-License-Identifier: MIT
 *
 * Limits the lines of the log that each user may cause, for each cause: one client's violations, or
 * the deaths of its processes, must not fill a disk or hide other lines.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RATELIMIT_LINES 5u    /* for each user and cause ... */
#define RATELIMIT_SECONDS 60u /* ... in this time, from the first of them */
#define RATELIMIT_HOUR 3600u
#define RATELIMIT_PAIRS 128u /* of a user and a cause that are remembered at the same time */

/* Static. what: of the line that counts what was left out, "lines about ..."; NULL: there is no
 * such line. */
struct ratelimit_cause {
	const char *message_id, *what;
};

struct ratelimit_pair {
	const struct ratelimit_cause *cause;
	uid_t uid;
	uint64_t since_ns;
	uint32_t written, left_out;
};

struct ratelimit {
	struct ratelimit_pair pairs[RATELIMIT_PAIRS];
	size_t n;
	struct ratelimit_pair others; /* of all pairs for which there was no space, together */
	bool hourly;		      /* a user and cause have one line in RATELIMIT_HOUR instead */
};

/* Counts a line of that user and says whether it may be written. now_ns: CLOCK_MONOTONIC. A zeroed
 * struct is new. */
bool ratelimit_pass(struct ratelimit *t, const struct ratelimit_cause *cause, uid_t uid,
		    uint64_t now_ns);

/* Call it periodically (each second): when the time of a pair is over, logs how many of its lines
 * were left out. */
void ratelimit_settle(struct ratelimit *t, uint64_t now_ns);
