/* SPDX-License-Identifier: MIT
 *
 * A driver call that fails for good: the device is lost, or this process's hold on it (cuda.c says
 * which results mean that). Every pool of the device has failed from then on: CREATE is refused
 * with the reason and without another call, which might hang. What exists stays: an exported fd is
 * handed on without the driver, and closed without it. Only a restart of the daemon tries the
 * device again, since no result would tell that it has come back.
 */
#include "daemon/pool/failure.h"

#include "daemon/pool/space.h"
#include "daemon/util/log.h"

#include <stdio.h>

static void fail(struct pool *pool)
{
	if (pool->state != POOL_READY)
		return;
	pool->state = POOL_FAILED;
	snprintf(pool->why, sizeof(pool->why), "%s", pool->device->why);
	space_poke(pool);
}

static void fail_all(struct device *d, char *names, size_t size)
{
	struct pool *it;
	size_t len = 0;

	*names = '\0';
	list_foreach (it, &d->pools, device_link) {
		fail(it);
		if (len < size)
			len += (size_t)snprintf(names + len, size - len, "%s%s", len ? ", " : "",
						it->config.name);
	}
}

void failure_note(struct pool *pool, const struct fault *f)
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

void failure_inherit(struct pool *pool)
{
	if (pool->device && pool->device->why[0])
		fail(pool);
}
