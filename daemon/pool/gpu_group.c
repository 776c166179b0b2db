/* SPDX-License-Identifier: MIT
 *
 * The pools of one GPU. They share its memory, so that what one pool holds no other can get; its
 * worker, so that what any of them flushes is freed before a later allocation runs; and its fate.
 * Pinned memory is the host's: a pinned pool shares the worker and the fate only.
 *
 * A GPU is lost when a driver call fails with an error that does not go away (cuda.c lists those).
 * Then every pool of the device has failed: CREATE is refused with the reason and without another
 * driver call, which might hang. Buffers that exist stay: an exported fd is lent and closed without
 * the driver. Only a restart of the daemon tries the device again, since no result tells that it is
 * back.
 *
 * A GPU is stuck while a driver call does not return. The call can't be cancelled, and a hanging
 * call looks like a slow one: clearing hundreds of GiB takes minutes. So the daemon cancels
 * no request. Requests that were already submitted wait, new ones are refused so that no more
 * clients hang, and status and log say why. Buffers are opened and closed without the driver, and
 * other GPUs and the host have their own threads.
 */
#include "daemon/pool/pool_internal.h"
#include "daemon/util/log.h"
#include "proto/base/size.h"
#include "proto/base/text.h"

#include <stdio.h>

static bool is_on_gpu(const struct pool *pool)
{
	return kind_of(pool->config.kind)->on_gpu;
}

/* A device that an earlier daemon had and this one has not found has no list of pools. */
static bool has_group(const struct pool *pool)
{
	return is_on_gpu(pool) && pool->device && pool->device != pool->adopted;
}

void gpu_group_flush(struct pool *pool)
{
	struct pool *it;

	pool_flush(pool);
	if (!has_group(pool))
		return;
	list_foreach (it, &pool->device->pools, device_link)
		if (is_on_gpu(it) && it != pool)
			pool_flush(it);
}

/* The driver keeps what a mempool once had. */
static uint64_t held_by(const struct pool *pool)
{
	uint64_t held = pool->used + pool->lost;

	return pool->config.kind == POOL_MEMPOOL && pool->peak > held ? pool->peak : held;
}

void gpu_group_describe(const struct pool *pool, char *text, size_t size)
{
	const struct pool *it;

	*text = '\0';
	if (!has_group(pool))
		return;
	list_foreach (it, &pool->device->pools, device_link)
		if (is_on_gpu(it) && it != pool && held_by(it) > 0)
			text_append(text, size, "%s: %s, ", it->config.name,
				    size_format(held_by(it)).text);
}

/* ---- a lost GPU ---- */

void gpu_group_join(struct pool *pool)
{
	if (pool->state != POOL_READY || !pool->device || !pool->device->why[0])
		return;
	pool->state = POOL_FAILED;
	snprintf(pool->why, sizeof(pool->why), "%s", pool->device->why);
	pool_requests_retry(pool);
}

static void fail_all(struct device *d, char *names, size_t size)
{
	struct pool *it;

	*names = '\0';
	list_foreach (it, &d->pools, device_link) {
		gpu_group_join(it);
		text_append(names, size, "%s%s", *names ? ", " : "", it->config.name);
	}
}

void pool_call_failed(struct pool *pool, const struct fault *f)
{
	struct log_about about = { .message_id = LOG_ID_POOL_FAILED, .pool = pool->config.name };
	struct device *d = pool->device;
	char names[256];

	if (f->code != CODE_POOL_FAILED || !d || d->why[0])
		return;
	snprintf(
		d->why, sizeof(d->why),
		"%.120s: the GPU is lost to gpushmd; nvidia-smi and the kernel's log say more, and "
		"a restart of gpushmd tries it again",
		f->text);
	fail_all(d, names, sizeof(names));
	log_write(LOG_ERR, &about, "GPU %d (%s, %s) has failed, and with it %s: %s", d->ordinal,
		  d->name, d->pci_id, names, d->why);
	if (pool->on_failed)
		pool->on_failed(pool->failed_arg);
}

/* ---- a stuck GPU ---- */

bool gpu_group_check_stuck(struct device *d, uint32_t seconds)
{
	struct log_about about = { .message_id = LOG_ID_POOL_FAILED };
	uint64_t busy_s = d->worker ? worker_busy_ns(d->worker) / 1000000000u : 0;
	bool stuck = busy_s >= seconds, was = d->stuck[0] != '\0';

	if (stuck == was)
		return false;
	if (stuck) {
		snprintf(d->stuck, sizeof(d->stuck),
			 "a driver call on GPU %d has not returned for %u s: until it does no "
			 "buffer is made there; nvidia-smi and the kernel's log may say why",
			 d->ordinal, seconds);
		log_write(LOG_ERR, &about, "%s", d->stuck);
	} else {
		d->stuck[0] = '\0';
		log_write(LOG_NOTICE, &about, "the driver call on GPU %d has returned", d->ordinal);
	}
	return true;
}

const char *pool_stuck(const struct pool *pool)
{
	return pool->device && pool->device->stuck[0] ? pool->device->stuck : NULL;
}

const char *pool_trouble(const struct pool *pool)
{
	return pool->state == POOL_FAILED ? pool->why : pool_stuck(pool);
}
