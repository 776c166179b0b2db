/* SPDX-License-Identifier: MIT */
#include "client/models/web/stop.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <poll.h>

bool load_await(int fd, short events, struct load_stop stop)
{
	struct pollfd waits = { .fd = fd, .events = events };
	int r;

	do {
		r = poll(&waits, 1, stop.asked ? LOAD_LOOK_AGAIN_MS : -1);
		if (r <= 0 && load_stopped(stop))
			return false;
	} while (r == 0 || (r < 0 && errno == EINTR));
	return true;
}

bool load_nap(uint64_t ms, struct load_stop stop)
{
	uint64_t end = clock_monotonic_ms() + ms;

	for (uint64_t now; (now = clock_monotonic_ms()) < end;) {
		if (load_stopped(stop))
			return false;
		poll(NULL, 0,
		     end - now < LOAD_LOOK_AGAIN_MS ? (int)(end - now) : LOAD_LOOK_AGAIN_MS);
	}
	return true;
}
