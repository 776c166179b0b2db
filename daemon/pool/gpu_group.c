/* SPDX-License-Identifier: MIT
 *
 * Who else is where a pool is. Pools of one GPU have one worker, so that what is flushed in any of
 * them is given back before an allocation that is submitted after it runs. Pinned memory is the
 * host's, and of no GPU's place.
 */
#include "daemon/pool/gpu_group.h"

#include "proto/base/size.h"

#include <stdio.h>

static bool is_on_gpu(const struct pool *pool)
{
	return pool->config.kind == POOL_VMM || pool->config.kind == POOL_MEMPOOL;
}

/* A device that an earlier daemon told of, and that was not found again, has no list of pools. */
static bool has_place(const struct pool *pool)
{
	return is_on_gpu(pool) && pool->device && pool->device != pool->adopted;
}

void gpu_group_flush(struct pool *pool)
{
	struct pool *it;

	pool_flush(pool);
	if (!has_place(pool))
		return;
	list_foreach (it, &pool->device->pools, device_link)
		if (is_on_gpu(it) && it != pool)
			pool_flush(it);
}

void gpu_group_tell(const struct pool *pool, char *text, size_t size)
{
	const struct pool *it;
	size_t len = 0;

	*text = '\0';
	if (!has_place(pool))
		return;
	list_foreach (it, &pool->device->pools, device_link) {
		if (!is_on_gpu(it) || it == pool || it->used + it->lost == 0 || len >= size)
			continue;
		len += (size_t)snprintf(text + len, size - len, "%s: %s, ", it->config.name,
					size_format(it->used + it->lost).text);
	}
}
