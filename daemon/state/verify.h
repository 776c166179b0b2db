/* SPDX-License-Identifier: MIT
 *
 * The audit: after a restart, whether the memory that was inherited is still there. A GPU that was
 * reset, or that nobody had open meanwhile, took it along, and the kept fds do not tell. The driver
 * does, once it is up; until then, and while it is asked, everything is served as it is.
 */
#ifndef GPUSHM_DAEMON_STATE_VERIFY_H
#define GPUSHM_DAEMON_STATE_VERIFY_H

#include "daemon/catalog/catalog.h"
#include "daemon/pool/pools.h"

/* To be called once, when every pool is ready or has failed. Buffers whose memory is gone are
 * dropped from the catalog, later. Both outlive the pools' workers. */
void verify_start(struct pools *pools, struct catalog *catalog);

#endif
