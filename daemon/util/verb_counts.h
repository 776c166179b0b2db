/* SPDX-License-Identifier: MIT
 *
 * Counts of the requests of one verb: by result, and by the time that they took. Each request is
 * counted on its way, so a count is an addition to a fixed array and reads no clock.
 */
#pragma once

#include "proto/code.h"

#include <stdint.h>

#define VERBS_MAX 32u /* field numbers of Request in gpushm.proto, from 1; 0: no request */
#define LATENCY_BOUNDS 22u

#define LATENCY_DECADE(ns) 1 * (ns), 5 * (ns) / 2, 5 * (ns)

/* ns, rising, 1 us to 10 s: the bounds that Prometheus' histograms have by custom, which begin
 * where requests do. */
static const uint64_t latency_bounds[LATENCY_BOUNDS] = {
	LATENCY_DECADE(1000ull),       LATENCY_DECADE(10000ull),
	LATENCY_DECADE(100000ull),     LATENCY_DECADE(1000000ull),
	LATENCY_DECADE(10000000ull),   LATENCY_DECADE(100000000ull),
	LATENCY_DECADE(1000000000ull), 10000000000ull,
};

struct verb_counts {
	uint64_t results[CODE_COUNT];
	uint64_t buckets[LATENCY_BOUNDS + 1]; /* the last: longer than all bounds */
	uint64_t ns;			      /* the sum of what is in the buckets */
	uint64_t waits, waited_ns;	      /* requests that waited for a name or a change */
};

/* Most requests take some microseconds, so the search begins at the shortest. */
static inline void verb_counts_took(struct verb_counts *v, uint64_t ns)
{
	unsigned i = 0;

	while (i < LATENCY_BOUNDS && ns > latency_bounds[i])
		i++;
	v->buckets[i]++;
	v->ns += ns;
}

static inline void verb_counts_waited(struct verb_counts *v, uint64_t ns)
{
	v->waits++;
	v->waited_ns += ns;
}
