/* SPDX-License-Identifier: MIT
 *
 * A GPU whose driver does not come back from a call.
 */
#ifndef GPUSHM_DAEMON_POOL_STUCK_H
#define GPUSHM_DAEMON_POOL_STUCK_H

#include "daemon/pool/pool.h"

/* Looks at the device's worker, now and then; logs when a call has taken longer than that, and when
 * it has come back. Whether that has changed. */
bool stuck_look(struct device *d, uint32_t seconds);

/* Since when the pool's device is stuck, for people; NULL where it is not. */
const char *stuck_why(const struct pool *pool);

/* What is wrong with the pool, failed or stuck; NULL where nothing is. */
const char *stuck_trouble(const struct pool *pool);

#endif
