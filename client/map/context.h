/* SPDX-License-Identifier: MIT
 *
 * Devices by their UUID and their ordinal, and the context that a thread is in.
 */
#ifndef GPUSHM_CLIENT_MAP_CONTEXT_H
#define GPUSHM_CLIENT_MAP_CONTEXT_H

#include "client/map/cuda.h"
#include "client/map/map.h"

/* The device of a pool, and the one that the request asks to map for, which must have peer access
 * to it. 0, or -ENODEV, -EIO with gpushm_error() set. */
int context_find_devices(const struct cuda *cu, const struct map_request *r, int *ret_owner,
			 int *ret_device);

/* The ordinal of the calling thread's context; 0 where it has none. */
int context_current_device(const struct cuda *cu);

/* Puts the thread into a context of the device: stays in the current one if it is, else goes into
 * the primary one, which is made (0.3 s) if nobody has. 0, -ENODEV, -EIO. */
int context_enter(const struct cuda *cu, int device, struct map_entered *ret);
void context_leave(const struct cuda *cu, const struct map_entered *e);

/* Waits for the work in the thread's context, if it is of the device, and in the device's primary
 * one, if there is one. 0 or -EIO. */
int context_synchronize(const struct cuda *cu, int device);

#endif
