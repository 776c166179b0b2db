/* SPDX-License-Identifier: MIT
 *
 * Devices by UUID and ordinal, and the CUDA context of a thread. After cuda_start().
 */
#pragma once

#include "client/lib/map/cuda.h"
#include "client/lib/map/map.h"

/* The device of a pool, and the one that the request asks to map for, which must have peer access
 * to it. 0, or -ENODEV, -EIO with gpushm_error() set. */
int context_find_devices(const struct map_request *r, int *ret_owner, int *ret_device);

/* The ordinal of the calling thread's context; 0 where it has none. */
int context_current_device(void);
