/* SPDX-License-Identifier: MIT
 *
 * Pools of one place: those whose memory is one GPU's, so that what one has another can't get.
 */
#ifndef GPUSHM_DAEMON_POOL_GPU_GROUP_H
#define GPUSHM_DAEMON_POOL_GPU_GROUP_H

#include "daemon/pool/pool.h"

/* Gives back what is pending in the pool and in all others of its place, ahead of whatever is
 * submitted to the pool's worker from now on. */
void gpu_group_flush(struct pool *pool);

/* Writes which other pools of its place have how much, "gpu0-mempool: 1.0 GiB, ", into text; "" for
 * none. */
void gpu_group_tell(const struct pool *pool, char *text, size_t size);

#endif
