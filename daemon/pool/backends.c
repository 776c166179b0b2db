/* SPDX-License-Identifier: MIT
 *
 * The table of the kinds of pools that this build has. It has a file of its own, so that a test can
 * bring a table of its own to the same code, and so that nocuda.c can stand in for it. Adding a
 * kind is one line here, one in kinds.h, and one file.
 */
#include "daemon/pool/backends.h"

const struct pool_ops *const pool_kinds[] = { &host_ops, &vmm_ops, &pinned_ops, &mempool_ops,
					      NULL };
