/* SPDX-License-Identifier: MIT
 *
 * Devices by UUID and ordinal, and the CUDA context of a thread. After cuda_start().
 */
#pragma once

#include "client/map/cuda.h"
#include "client/map/map.h"

/* The device of a pool, and the one that the request asks to map for, which must have peer access
 * to it. 0, or -ENODEV, -EIO with gpushm_error() set. */
int context_find_devices(const struct map_request *r, int *ret_owner, int *ret_device);

/* The ordinal of the calling thread's context; 0 where it has none. */
int context_current_device(void);

/* Puts the thread into a context of the device: the current one if it is of that device, else the
 * primary one, which is made (0.3 s) if it does not exist. 0, -ENODEV, -EIO. */
int context_enter(int device, struct map_entered *ret);
void context_leave(const struct map_entered *e);
