/* SPDX-License-Identifier: MIT
 *
 * After a restart: is the memory of adopted buffers still there? A GPU that was reset, or that
 * nobody had open meanwhile, has lost it, and the kept fds do not show that. The driver knows, once
 * it has started; until its result is there, the daemon serves everything as it is.
 */
#pragma once

#include "daemon/catalog/catalog.h"
#include "daemon/pool/pools.h"

/* To be called once, when every pool is ready or has failed. Later calls catalog_memory_lost() for
 * buffers whose memory is gone. Both must outlive the pools' workers. */
void verify_start(struct pools *pools, struct catalog *catalog);
