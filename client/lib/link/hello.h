/* SPDX-License-Identifier: MIT
 *
 * HELLO and RECLAIM: the start of a connection, and its return to a daemon that was restarted. The
 * daemon's side is daemon/ipc/hello.c.
 */
#pragma once

#include "client/lib/link/connection.h"

/* The two halves of HELLO, for a caller that does not block; flags as for connection_receive(). The
 * caller has c->lock. 0 or -errno with gpushm_error() set. */
int hello_send(struct gpushm *c);
int hello_receive(struct gpushm *c, int flags);

/* Sets gpushm_error(): no reply to HELLO within that time. Returns -number. */
int hello_no_reply(const struct gpushm *c, int number, uint64_t ms);

/* Asks for the pools again: there may be new ones since HELLO. The caller has c->lock. 0 or -errno
 * with gpushm_error() set. */
int hello_refresh_pools(struct gpushm *c);

/* Connects again, says HELLO and reclaims the connection's leases. The caller has c->lock and keeps
 * it throughout. Waits for the daemon hello_reconnect_ms() at most. 0, or -ECONNRESET and others
 * with gpushm_error() set: then the connection is broken. */
int hello_reconnect(struct gpushm *c);

/* The same, but waits so long only, and a millisecond at least: the next call goes on with what
 * this one has begun. -EAGAIN, without a text: the time is over, and there is no daemon yet. */
int hello_resume(struct gpushm *c, uint64_t ms);

/* Whether a reconnection has failed so short a time ago that a caller which does not need the
 * daemon should not wait again. Under c->lock. */
bool hello_gave_up_lately(const struct gpushm *c);

/* How long to wait for a daemon that has gone: $GPUSHM_RECONNECT_MS; at most INT_MAX. */
uint64_t hello_reconnect_ms(void);
/* How long to wait for the reply to HELLO: as long, but at least a second. */
uint64_t hello_reply_ms(void);

/* Whether this error of endpoint_connect() may pass when the daemon is back. */
bool hello_may_pass(int error);

/* ---- outages ---- */

/* An outage of the daemon, as waits find it that need no request: between two naps they look at the
 * connection. Many calls may wait for one daemon, so the outage counts over all of them, and is
 * reported each time that it has been as long as a request waits. The caller has the connection's
 * lock; *since is the caller's: CLOCK_MONOTONIC in ms, 0: none that it knows of. */

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
