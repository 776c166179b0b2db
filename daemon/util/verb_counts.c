/* SPDX-License-Identifier: MIT
 *
 * The bounds are those that Prometheus' histograms have by custom, which begin where requests do.
 */
#include "daemon/util/verb_counts.h"

#define US 1000ull
#define MS 1000000ull
#define S 1000000000ull
#define DECADE(unit, n) 1 * (n) * (unit), 5 * (n) * (unit) / 2, 5 * (n) * (unit)

const uint64_t latency_bounds[LATENCY_BOUNDS] = {
	DECADE(US, 1),	DECADE(US, 10),	 DECADE(US, 100), DECADE(MS, 1),
	DECADE(MS, 10), DECADE(MS, 100), DECADE(S, 1),	  10 * S,
};
