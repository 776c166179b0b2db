/* SPDX-License-Identifier: MIT
 *
 * The kinds of pools, for the table pool_kinds in cuda.c and nocuda.c. Other files see struct pool.
 */
#pragma once

#include "daemon/pool/pool.h"

extern const struct pool_ops host_ops;	  /* sealed memfds */
extern const struct pool_ops vmm_ops;	  /* memory of a GPU, one driver allocation a block */
extern const struct pool_ops pinned_ops;  /* the same of a NUMA node of the host */
extern const struct pool_ops mempool_ops; /* a driver's pool, which sub-allocates */
