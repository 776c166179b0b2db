/* SPDX-License-Identifier: MIT */
#include "client/models/files/pipe.h"

#include <errno.h>
#include <poll.h>

bool pipe_wait(int fd, short events, struct load_stop stop)
{
	struct pollfd waits = { .fd = fd, .events = events };
	int r;

	do {
		r = poll(&waits, 1, stop.asked ? PIPE_LOOK_AGAIN_MS : -1);
		if (r <= 0 && load_stopped(stop))
			return false;
	} while (r == 0 || (r < 0 && errno == EINTR));
	return true;
}
