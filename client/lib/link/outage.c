/* SPDX-License-Identifier: MIT */
#include "client/lib/link/outage.h"

#include "client/lib/base/error.h"
#include "client/lib/link/hello.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <poll.h>

bool outage_has_begun(const struct gpushm *c)
{
	struct pollfd p = { .fd = c->socket, .events = POLLRDHUP };

	return c->broken || poll(&p, 1, 0) > 0;
}

uint64_t outage_left(const struct gpushm *c, uint64_t *since)
{
	uint64_t limit = hello_reply_ms(), now = clock_monotonic_ms();

	/* One that began before the connection was made again is over. */
	*since = *since > c->back_at ? *since : now;
	return now - *since < limit ? limit - (now - *since) : 0;
}

int outage_error(const struct gpushm *c)
{
	return c->greeting ? hello_no_reply(c, ECONNRESET, hello_reply_ms())
			   : error_set(ECONNRESET, "the daemon has gone and does not come back");
}

int outage_report(const struct gpushm *c, int r, uint64_t *since)
{
	if (r == -EAGAIN && clock_monotonic_ms() - *since < hello_reply_ms())
		return r;
	*since = 0;
	return r == -EAGAIN ? outage_error(c) : r;
}
