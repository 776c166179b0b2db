/* SPDX-License-Identifier: MIT
 *
 * Carries a walk out between the host and memory that a driver's stream copies.
 */
#ifndef GPUSHM_CLIENT_ARRAY_TRANSFER_H
#define GPUSHM_CLIENT_ARRAY_TRANSFER_H

#include "client/array/copy_plan.h"
#include "client/map/map.h"

/* Queues the copy of w on the stream; to_host: the walk's dst is `host`, else it is `device`. Where
 * strides make it go through a buffer of ours, it blocks until the stream has done its part.
 * Never writes to a byte of device memory that is not of an element: others may write to those at
 * the same time. Within map_enter(). 0, -ENOMEM or -EIO, with gpushm_error() set. */
int transfer(const struct copy_plan *w, void *device, void *host, bool to_host, void *stream);

/* Waits until the stream has done what was queued, also where r is the -errno of a call that failed
 * after others had been queued: then r and its gpushm_error() stay. Within map_enter(). r, or
 * -EIO. */
int transfer_settle(void *stream, int r);

#endif
