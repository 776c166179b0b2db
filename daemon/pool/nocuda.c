/* SPDX-License-Identifier: MIT
 *
 * What a build without the CUDA Toolkit's headers has instead of cuda.c and the GPU backends: no
 * GPU is ever found, and only the kernel's kinds of pools can be made. daemon.mk chooses the files.
 *
 * The daemon still reads a configuration with GPU pools; such a pool is failed and says why.
 */
#include "daemon/pool/pool_internal.h"

#include <stdio.h>

const struct pool_ops *const pool_kinds[] = { KERNEL_KINDS(OPS_OF) NULL };

void devices_probe(struct devices *d)
{
	*d = (struct devices){ 0 };
	snprintf(d->why_none, sizeof(d->why_none),
		 "built without the CUDA Toolkit: host pools only");
}

void device_release_context(struct device *d)
{
}

size_t driver_calls(struct driver_call ret[DRIVER_CALLS_MAX])
{
	return 0;
}
