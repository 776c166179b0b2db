/* SPDX-License-Identifier: MIT
 *
 * How a wait ends before its time.
 */
#pragma once

#include <stdbool.h>

/* Whether to stop waiting for the data of a stream or a server. It is asked some ten times a second
 * in the thread that waits; NULL: wait as long as it takes. */
struct load_stop {
	bool (*asked)(const void *of);
	const void *of;
};

static inline bool load_stopped(struct load_stop stop)
{
	return stop.asked && stop.asked(stop.of);
}
