/* SPDX-License-Identifier: MIT
 *
 * Refusals: how many requests were refused, for each error code. The counts live through a restart
 * of the daemon. The log gets one line for each user and code in an hour.
 */
#pragma once

#include "proto/code.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REFUSALS_QUIET_S 3600u /* between two lines about one user and code */
#define REFUSALS_TOLD_MAX 64u  /* pairs of both that are remembered at the same time */

struct refusals {
	uint64_t counts[CODE_COUNT];
	bool changed; /* since the counts were written down for the next daemon */
	struct refusal_told {
		uid_t uid;
		enum code code;
		uint64_t since_ns; /* CLOCK_MONOTONIC */
	} told[REFUSALS_TOLD_MAX];
	size_t n_told;
};

/* A zeroed struct has counted nothing. An unknown code is not counted. */
void refusals_count(struct refusals *r, int code);

/* Whether the log is to get a line about this user and code now. */
bool refusals_tell(struct refusals *r, uid_t uid, enum code code, uint64_t now_ns);
