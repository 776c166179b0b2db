/* SPDX-License-Identifier: MIT
 *
 * Refusals: how many requests were refused, for each error code. The counts live through a restart
 * of the daemon.
 */
#pragma once

#include "proto/code.h"

#include <stdbool.h>
#include <stdint.h>

struct refusals {
	uint64_t counts[CODE_COUNT];
	bool changed; /* since the counts were written down for the next daemon */
};

/* A zeroed struct has counted nothing. An unknown code is not counted. */
static inline void refusals_count(struct refusals *r, int code)
{
	if (code <= CODE_OK || code >= CODE_COUNT)
		return;
	r->counts[code]++;
	r->changed = true;
}
