/* SPDX-License-Identifier: MIT
 *
 * One audit for each pool with inherited buffers, on the worker of its device, a batch at a time,
 * so that an allocation never stands behind more than some milliseconds of it. The fds that are
 * looked at are duplicates: meanwhile the buffers, and even the pool, may go.
 *
 * The driver is asked for a verdict, not for a reason: memory is gone where it refuses a handle and
 * at once takes one that is fresh. Whatever else it answers may pass, and nothing is dropped for
 * it. Where the device is not there at all nobody can be asked: its buffers stay.
 */
#include "daemon/state/verify.h"

#include "daemon/util/log.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define BATCH 64

struct item {
	uint64_t buffer; /* its id; 0: the whole pool, by its own fd */
	int fd;		 /* owned */
	int result;
	struct fault fault;
};

struct audit {
	struct job job;
	struct pools *pools;
	struct catalog *catalog;
	uint32_t pool;	      /* its id; it may go before we do */
	struct pool *sponsor; /* of the same kind and device, and open; goes with its worker */
	uint64_t after;	      /* id of the last buffer that was looked at */
	struct item items[BATCH];
	size_t n;
	uint32_t dropped, unknown;
};

/* ---- asking ---- */

static void run(struct job *job)
{
	struct audit *a = container_of(job, struct audit, job);

	for (size_t i = 0; i < a->n; i++) {
		struct item *it = &a->items[i];

		it->result = a->sponsor->ops->verify(a->sponsor, it->fd, &it->fault);
	}
}

/* Without an fd to spare it is left as it is. */
static bool add(struct audit *a, uint64_t buffer, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return false;
	a->items[a->n++] = (struct item){ .buffer = buffer, .fd = copy };
	return true;
}

/* A mempool's blocks have one fd. */
static void collect(struct audit *a, const struct pool *pool)
{
	struct buffer *b;

	a->n = 0;
	if (pool->pool_fd >= 0) {
		if (a->after == 0)
			add(a, 0, pool->pool_fd);
		a->after = UINT64_MAX;
		return;
	}
	while (a->n < BATCH && (b = catalog_next(a->catalog, a->after))) {
		a->after = b->id;
		if (b->pool == pool && b->block.inherited && !add(a, b->id, b->block.fd))
			a->unknown++;
	}
}

/* ---- the answers ---- */

static void drop(struct audit *a, struct buffer *b, const struct fault *why)
{
	struct log_about about = { .message_id = LOG_ID_LOST,
				   .pool = b->pool->config.name,
				   .name = b->key,
				   .uid = b->uid,
				   .buffer = b->id };

	log_write(LOG_ERR, &about,
		  "buffer \"%s\" is lost: pool \"%s\" has its memory no more (%s): the GPU was "
		  "reset, or nobody had it open while gpushmd was down (nvidia-persistenced "
		  "prevents that); who made it creates it again",
		  b->key ? b->key : "", b->pool->config.name, why->text);
	catalog_memory_lost(a->catalog, b, why->text);
	a->dropped++;
}

static void judge_buffer(struct audit *a, const struct item *it)
{
	struct buffer *b = catalog_by_id(a->catalog, it->buffer);

	if (!b)
		return;
	if (it->result == -ESTALE)
		drop(a, b, &it->fault);
	else if (it->result == 0)
		b->block.inherited = false;
	else
		a->unknown++;
}

static void judge_pool(struct audit *a, const struct item *it, const struct pool *pool)
{
	struct buffer *b;
	uint64_t after = 0;

	while ((b = catalog_next(a->catalog, after))) {
		after = b->id;
		if (b->pool == pool && b->block.inherited)
			judge_buffer(a, &(struct item){ b->id, -1, it->result, it->fault });
	}
}

static void judge(struct audit *a, struct item *it)
{
	struct pool *pool = pools_by_id(a->pools, a->pool);

	close_fd(&it->fd);
	if (pool && it->result < 0 && it->result != -ESTALE) {
		if (a->unknown == 0)
			log_warning("pool \"%s\": whether its buffers of an earlier gpushmd are "
				    "still there can't be told: %s; they are kept",
				    pool->config.name, it->fault.text);
		pool_call_failed(a->sponsor, &it->fault);
	}
	if (pool && it->buffer)
		judge_buffer(a, it);
	else if (pool)
		judge_pool(a, it, pool);
}

static void on_done(struct job *job);

/* False: there is nothing left to ask. */
static bool go_on(struct audit *a)
{
	const struct pool *pool = pools_by_id(a->pools, a->pool);

	if (!pool || pool->closing || a->sponsor->state != POOL_READY)
		return false;
	collect(a, pool);
	if (a->n == 0)
		return false;
	a->job.run = run;
	a->job.on_done = on_done;
	worker_submit(a->sponsor->worker, &a->job);
	return true;
}

static void on_done(struct job *job)
{
	struct audit *a = container_of(job, struct audit, job);

	for (size_t i = 0; i < a->n; i++)
		judge(a, &a->items[i]);
	if (go_on(a))
		return;
	if (a->dropped)
		log_notice("%" PRIu32 " buffers of an earlier gpushmd were lost with their memory",
			   a->dropped);
	free(a);
}

/* ---- the beginning ---- */

static bool is_sponsor(const struct pool *it, const struct pool *pool)
{
	return it->state == POOL_READY && it->ops == pool->ops && it->device && pool->device &&
	       memcmp(it->device->uuid, pool->device->uuid, sizeof(it->device->uuid)) == 0;
}

static struct pool *find_sponsor(const struct pools *pools, const struct pool *pool)
{
	struct pool *it;

	list_foreach (it, &pools->all, link)
		if (is_sponsor(it, pool))
			return it;
	return NULL;
}

void verify_start(struct pools *pools, struct catalog *catalog)
{
	struct pool *pool, *sponsor;
	struct audit *a;

	list_foreach (pool, &pools->all, link) {
		if (!pool->is_adopted || !pool->ops || !pool->ops->verify || pool->blocks == 0)
			continue;
		sponsor = find_sponsor(pools, pool);
		if (!sponsor) {
			log_warning("pool \"%s\": its GPU is not there; %" PRIu32 " buffers of an "
				    "earlier gpushmd are kept for when it is",
				    pool->config.name, pool->blocks);
			continue;
		}
		a = calloc(1, sizeof(*a));
		if (!a)
			return;
		*a = (struct audit){
			.pools = pools, .catalog = catalog, .pool = pool->id, .sponsor = sponsor
		};
		if (!go_on(a))
			free(a);
	}
}
