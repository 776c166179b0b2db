/* SPDX-License-Identifier: MIT
 *
 * Limits the lines of the log that each user may cause: one client's violations, or the deaths of
 * its processes, must not fill a disk or hide other lines.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RATELIMIT_LINES 5u    /* for each user ... */
#define RATELIMIT_SECONDS 60u /* ... in this time, from the first of them */
#define RATELIMIT_USERS 64u   /* that are remembered at the same time */

struct ratelimit_user {
	uid_t uid;
	uint64_t since_ns;
	uint32_t written, left_out;
};

struct ratelimit {
	const char *message_id, *what; /* static; of the line that counts what was left out */
	struct ratelimit_user users[RATELIMIT_USERS];
	size_t n;
};

/* Counts a line of that user and says whether it may be written. now_ns: CLOCK_MONOTONIC. A struct
 * with no users is new. */
bool ratelimit_pass(struct ratelimit *t, uid_t uid, uint64_t now_ns);

/* Call it periodically (each second): when a user's time is over, logs how many of its lines were
 * left out. */
void ratelimit_settle(struct ratelimit *t, uint64_t now_ns);
