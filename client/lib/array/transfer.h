/* SPDX-License-Identifier: MIT
 *
 * Carries out a copy plan between the host and memory that the driver copies on a stream, or
 * between two places of such memory.
 */
#pragma once

#include "client/lib/array/copy_plan.h"
#include "client/lib/map/map.h"

/* Queues the copy on the stream. to_host: the plan's dst is `host`, else it is `device`. Where
 * strides need a buffer of the library, blocks until the stream has done its part. Never writes to
 * a byte of device memory between the elements, because other processes may write there at the same
 * time. After map_enter(). 0, -ENOMEM or -EIO, with gpushm_error() set. */
int transfer(const struct copy_plan *plan, void *device, void *host, bool to_host, void *stream);

/* The same where both sides are memory that the driver copies, of one GPU or two. They do not
 * overlap. */
int transfer_on_device(const struct copy_plan *plan, void *dst, void *src, void *stream);

/* The same where both sides may overlap: all of it is on the host in between. Done on return. */
int transfer_staged(const struct copy_plan *plan, void *dst, void *src, void *stream);

/* Waits until the stream has done what was queued. r: 0, or the -errno of a call that failed after
 * others were queued; it is kept, with its gpushm_error(). After map_enter(). r, or -EIO. */
int transfer_settle(void *stream, int r);
