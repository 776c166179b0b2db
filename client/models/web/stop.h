/* SPDX-License-Identifier: MIT
 *
 * How a wait ends before its time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

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

#define LOAD_LOOK_AGAIN_MS 100 /* whether to stop is asked so often */

/* Blocks until there are data (POLLIN) or space (POLLOUT) in a pipe, or its other end was closed. A
 * signal does not end the wait, but whether to stop is asked at once then. False: it was stopped.
 */
bool load_await(int fd, short events, struct load_stop stop);

/* Waits so long. False: it was stopped. */
bool load_nap(uint64_t ms, struct load_stop stop);
