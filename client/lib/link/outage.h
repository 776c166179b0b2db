/* SPDX-License-Identifier: MIT
 *
 * An outage of the daemon, as waits find it that need no request: between two naps they look at the
 * connection. Many calls may wait for one daemon, so the outage counts over all of them, and is
 * reported each time that it has been as long as a request waits. The caller has the connection's
 * lock; *since is the caller's: CLOCK_MONOTONIC in ms, 0: none that it knows of.
 */
#pragma once

#include "client/lib/link/connection.h"

/* Whether the daemon has gone: the connection is broken or hung up. */
bool outage_has_begun(const struct gpushm *c);

/* How long it may still last, in ms. */
uint64_t outage_left(const struct gpushm *c, uint64_t *since);

/* Sets gpushm_error(): the daemon has been away for as long as a request waits. Returns
 * -ECONNRESET. */
int outage_error(const struct gpushm *c);

/* r: of a try to reconnect; -EAGAIN: the daemon may still come. Returns r, or -ECONNRESET with
 * gpushm_error() set if it has not come in time. */
int outage_report(const struct gpushm *c, int r, uint64_t *since);
