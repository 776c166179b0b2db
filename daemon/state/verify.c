/* SPDX-License-Identifier: MIT
 *
 * Each pool with adopted buffers is verified on the worker of its device, a batch at a time, so
 * that an allocation waits some milliseconds at most. The worker gets duplicates of the fds,
 * because the buffers, and even the pool, may go meanwhile.
 *
 * A buffer is lost if the driver refuses its handle and accepts a fresh one at once. Any other
 * error may be temporary, and no buffer is dropped for it. If the device is missing, no driver can
 * check: the buffers stay.
 */
#include "daemon/state/deserialize.h"

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

struct verification {
	struct job job;
	struct pools *pools;
	struct catalog *catalog;
	uint32_t pool;	      /* its id: the pool may go first */
	struct pool *sponsor; /* an open pool of the same kind and device, whose worker it uses */
	uint64_t after;	      /* id of the last buffer that was collected */
	struct item items[BATCH];
	size_t n;
	uint32_t dropped, unknown;
};

/* ---- the checks ---- */

static void run(struct job *job)
{
	struct verification *v = container_of(job, struct verification, job);

	for (size_t i = 0; i < v->n; i++) {
		struct item *it = &v->items[i];

		it->result = v->sponsor->ops->verify(v->sponsor, it->fd, &it->fault);
	}
}

/* Without a free fd the buffer stays unverified. */
static bool add(struct verification *v, uint64_t buffer, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return false;
	v->items[v->n++] = (struct item){ .buffer = buffer, .fd = copy };
	return true;
}

/* All blocks of a mempool share one fd. */
static void collect(struct verification *v, const struct pool *pool)
{
	struct buffer *b;

	v->n = 0;
	if (pool->pool_fd >= 0) {
		if (v->after == 0)
			add(v, 0, pool->pool_fd);
		v->after = UINT64_MAX;
		return;
	}
	while (v->n < BATCH && (b = catalog_next(v->catalog, v->after))) {
		v->after = b->id;
		if (b->pool == pool && b->block.unverified && !add(v, b->id, b->block.fd))
			v->unknown++;
	}
}

/* ---- the results ---- */

static void drop(struct verification *v, struct buffer *b, const struct fault *why)
{
	struct log_about about = { .message_id = LOG_ID_LOST,
				   .pool = b->pool->config.name,
				   .name = b->key,
				   .uid = b->uid,
				   .buffer = b->id };

	log_write(LOG_ERR, &about,
		  "buffer \"%s\" is lost: pool \"%s\" no longer has its memory (%s): the GPU was "
		  "reset, or nobody had it open while gpushmd was down (nvidia-persistenced "
		  "prevents that); its creator must create it again",
		  b->key ? b->key : "", b->pool->config.name, why->text);
	catalog_memory_lost(v->catalog, b, why->text);
	v->dropped++;
}

static void take_result_buffer(struct verification *v, const struct item *it)
{
	struct buffer *b = catalog_by_id(v->catalog, it->buffer);

	if (!b)
		return;
	if (it->result == -ESTALE)
		drop(v, b, &it->fault);
	else if (it->result == 0)
		b->block.unverified = false;
	else
		v->unknown++;
}

static void take_result_pool(struct verification *v, const struct item *it, const struct pool *pool)
{
	struct buffer *b;
	uint64_t after = 0;

	while ((b = catalog_next(v->catalog, after))) {
		after = b->id;
		if (b->pool == pool && b->block.unverified)
			take_result_buffer(v, &(struct item){ b->id, -1, it->result, it->fault });
	}
}

static void take_result(struct verification *v, struct item *it)
{
	struct pool *pool = pools_by_id(v->pools, v->pool);

	close_fd(&it->fd);
	if (pool && it->result < 0 && it->result != -ESTALE) {
		if (v->unknown == 0)
			log_warning_id(LOG_ID_NOT_VERIFIED,
				       "pool \"%s\": whether its buffers of an earlier gpushmd are "
				       "still there can't be told: %s; they are kept",
				       pool->config.name, it->fault.text);
		pool_call_failed(v->sponsor, &it->fault);
	}
	if (pool && it->buffer)
		take_result_buffer(v, it);
	else if (pool)
		take_result_pool(v, it, pool);
}

/* Verifies the next batch; false if nothing is left. */
static bool verify_next(struct verification *v)
{
	const struct pool *pool = pools_by_id(v->pools, v->pool);

	if (!pool || pool->closing || v->sponsor->state != POOL_READY)
		return false;
	collect(v, pool);
	if (v->n == 0)
		return false;
	worker_submit(v->sponsor->worker, &v->job);
	return true;
}

static void on_done(struct job *job)
{
	struct verification *v = container_of(job, struct verification, job);

	for (size_t i = 0; i < v->n; i++)
		take_result(v, &v->items[i]);
	if (verify_next(v))
		return;
	if (v->dropped)
		log_notice("%" PRIu32 " buffers of an earlier gpushmd were lost with their memory",
			   v->dropped);
	free(v);
}

/* ---- the start ---- */

static struct pool *find_sponsor(const struct pools *pools, const struct pool *pool)
{
	struct pool *it;

	list_foreach (it, &pools->all, link)
		if (it->state == POOL_READY && it->ops == pool->ops && it->device && pool->device &&
		    memcmp(it->device->uuid, pool->device->uuid, sizeof(it->device->uuid)) == 0)
			return it;
	return NULL;
}

void verify_start(struct pools *pools, struct catalog *catalog)
{
	struct pool *pool, *sponsor;
	struct verification *v;

	list_foreach (pool, &pools->all, link) {
		if (!pool->is_adopted || !pool->ops || !pool->ops->verify || pool->blocks == 0)
			continue;
		sponsor = find_sponsor(pools, pool);
		if (!sponsor) {
			log_warning_id(LOG_ID_NOT_VERIFIED,
				       "pool \"%s\": its GPU is not there; %" PRIu32
				       " buffers of an "
				       "earlier gpushmd are kept for when it is",
				       pool->config.name, pool->blocks);
			continue;
		}
		v = calloc(1, sizeof(*v));
		if (!v)
			return;
		*v = (struct verification){ .job = { .run = run, .on_done = on_done },
					    .pools = pools,
					    .catalog = catalog,
					    .pool = pool->id,
					    .sponsor = sponsor };
		if (!verify_next(v))
			free(v);
	}
}
