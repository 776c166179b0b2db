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

/* Pins the process's memory for all GPUs, also while a stream captures a graph; size 0: unpins it.
 * flags: of cuMemHostRegister(). ret_address: for GPUs; NULL: they don't use it. device: whose
 * context the call is made in. 0, or -errno with gpushm_error() set. */
int context_pin(int device, void *memory, size_t size, unsigned int flags, uint64_t *ret_address);

/* The ordinal of the calling thread's context; 0 where it has none. */
int context_current_device(void);
