/* SPDX-License-Identifier: MIT
 *
 * What stands in for all rooms that need cuda.h, where the CUDA Toolkit was not there to build
 * with: no GPU is ever found, and the one kind of pool is host.
 *
 * A configuration that names a GPU pool is still read; the pool is failed and says why. The
 * Makefile chooses between this file and those that it replaces.
 */
#include "daemon/pool/backends.h"
#include "daemon/pool/device.h"

#include <stdio.h>

const struct pool_ops *const pool_kinds[] = { &host_ops, NULL };

void devices_probe(struct devices *d)
{
	*d = (struct devices){ 0 };
	snprintf(d->why_none, sizeof(d->why_none),
		 "built without the CUDA Toolkit: host pools only");
}

int devices_start(struct devices *d, uv_loop_t *loop)
{
	return 0;
}

void devices_done(struct devices *d)
{
}
