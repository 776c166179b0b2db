/* SPDX-License-Identifier: MIT
 *
 * What the daemon tells whoever supervises it, by sd_notify(3). Where nobody does, nothing.
 */
#ifndef GPUSHM_DAEMON_SD_NOTIFY_H
#define GPUSHM_DAEMON_SD_NOTIFY_H

#include "daemon/pool/pools.h"

/* It serves; also after a restart that did not come about. With what notify_pools() tells. */
void notify_ready(const struct pools *p);

/* How many pools there are, and which is in trouble. */
void notify_pools(const struct pools *p);

void notify_alive(void); /* for the watchdog */
void notify_restarting(void);
void notify_stopping(void);

#endif
