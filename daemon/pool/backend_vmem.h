/* SPDX-License-Identifier: MIT
 *
 * What vmm and pinned pools share: a block is one allocation of the driver, exported as an fd when
 * it is made. Only the place differs. The functions are members of a struct pool_ops.
 */
#ifndef GPUSHM_DAEMON_POOL_BACKEND_VMEM_H
#define GPUSHM_DAEMON_POOL_BACKEND_VMEM_H

#include "daemon/pool/pool.h"

#include <cuda.h>

/* To be called by a kind's open with the place that its memory is in. */
int vmem_open(struct pool *pool, CUmemLocation location, struct pool_opened *ret, struct fault *f);

int vmem_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f);
int vmem_free(struct pool *pool, struct block *block, struct fault *f);
void vmem_close(struct pool *pool);
int vmem_verify(struct pool *pool, int fd, struct fault *f);

#endif
