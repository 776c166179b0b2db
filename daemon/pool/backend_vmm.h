/* SPDX-License-Identifier: MIT
 *
 * What pinned pools share with vmm pools: only the place of the memory differs. The functions are
 * members of a struct pool_ops.
 */
#pragma once

#include "daemon/pool/pool.h"

#include <cuda.h>

/* A kind's open calls it with the place of its memory. */
int vmm_open_at(struct pool *pool, CUmemLocation location, struct pool_opened *ret,
		struct fault *f);

int vmm_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f);
int vmm_free(struct pool *pool, struct block *block, struct fault *f);
void vmm_close(struct pool *pool);
int vmm_verify(struct pool *pool, int fd, struct fault *f);
