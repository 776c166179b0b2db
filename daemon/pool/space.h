/* SPDX-License-Identifier: MIT
 *
 * Requests that wait for room in their pool, or on its device.
 */
#ifndef GPUSHM_DAEMON_POOL_SPACE_H
#define GPUSHM_DAEMON_POOL_SPACE_H

#include "daemon/pool/pool.h"

void space_init(struct pool *pool);

/* Fixes when the request gives up, wait_ms from now. */
void space_set_deadline(struct pool_request *r);

/* Whether it may wait (longer). */
bool space_has_time(const struct pool_request *r);

/* The request waits, with r->fault as what it is answered if nothing comes of it. foreign: the pool
 * has room and the device has not, so that nothing here tells when that changes. */
void space_wait(struct pool_request *r, bool foreign);

/* It waits no more; its owner is told with that result. */
void space_leave(struct pool_request *r, int result);

/* Something was freed, or the pool has failed: who waits is looked at, soon. */
void space_poke(struct pool *pool);

#endif
