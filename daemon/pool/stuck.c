/* SPDX-License-Identifier: MIT
 *
 * A driver call that does not come back can't be called off, and nobody can tell a call that hangs
 * from one that is slow: clearing hundreds of GiB takes minutes. So nothing is given up. What has
 * been asked of the GPU waits, for the call may return; what is asked anew is refused, so that no
 * more clients hang with it; and whoever looks is told. Buffers that exist are opened and closed
 * without the driver, and the other GPUs and the host have threads of their own.
 */
#include "daemon/pool/stuck.h"

#include "daemon/util/log.h"

#include <stdio.h>

bool stuck_look(struct device *d, uint32_t seconds)
{
	struct log_about about = { .message_id = LOG_ID_POOL_FAILED };
	uint64_t busy_s = d->worker ? worker_busy_ns(d->worker) / 1000000000u : 0;
	bool stuck = busy_s >= seconds, was = d->stuck[0] != '\0';

	if (stuck == was)
		return false;
	if (stuck)
		snprintf(d->stuck, sizeof(d->stuck),
			 "a driver call on GPU %d has not returned for %u s: until it does no "
			 "buffer is made there; nvidia-smi and the kernel's log may say why",
			 d->ordinal, seconds);
	else
		d->stuck[0] = '\0';
	if (stuck)
		log_write(LOG_ERR, &about, "%s", d->stuck);
	else
		log_write(LOG_NOTICE, &about, "the driver call on GPU %d has returned", d->ordinal);
	return true;
}

const char *stuck_why(const struct pool *pool)
{
	return pool->device && pool->device->stuck[0] ? pool->device->stuck : NULL;
}

const char *stuck_trouble(const struct pool *pool)
{
	return pool->state == POOL_FAILED ? pool->why : stuck_why(pool);
}
