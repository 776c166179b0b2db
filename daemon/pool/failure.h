/* SPDX-License-Identifier: MIT
 *
 * A device that is lost, and what becomes of its pools.
 */
#ifndef GPUSHM_DAEMON_POOL_FAILURE_H
#define GPUSHM_DAEMON_POOL_FAILURE_H

#include "daemon/pool/pool.h"

/* What a driver call for this pool has failed with. Where it is CODE_POOL_FAILED, no pool of the
 * device makes buffers any more. On the loop's thread. */
void failure_note(struct pool *pool, const struct fault *f);

/* The same for a pool that became ready after its device was lost. */
void failure_inherit(struct pool *pool);

#endif
