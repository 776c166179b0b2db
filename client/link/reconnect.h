/* SPDX-License-Identifier: MIT
 *
 * Coming back to a daemon that was started again.
 */
#ifndef GPUSHM_CLIENT_LINK_RECONNECT_H
#define GPUSHM_CLIENT_LINK_RECONNECT_H

#include "client/link/connection.h"

/* Connects again, says HELLO and reclaims the leases of the connection's buffers. Holds c->lock
 * throughout, which the caller has. Waits for the daemon as long as GPUSHM_RECONNECT_MS says. 0, or
 * -ECONNRESET and others with gpushm_error() set: then the connection is broken. */
int reconnect(struct gpushm *c);

/* Whether the daemon was waited for in vain so short a time ago that who can do without it need not
 * wait again. Under c->lock. */
bool reconnect_was_in_vain(const struct gpushm *c);

/* How long a daemon that has gone is waited for: $GPUSHM_RECONNECT_MS; at most INT_MAX. */
uint64_t reconnect_ms(void);
/* And for the answer of one that can be connected to: as long, but a second at least, for any
 * answer takes some time. */
uint64_t reconnect_answer_ms(void);

/* Whether an error of endpoint_connect() may be over when the daemon is there again. */
bool reconnect_may_help(int error);

#endif
