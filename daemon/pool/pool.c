/* SPDX-License-Identifier: MIT
 *
 * A pool's life: made, opened on its worker, ready or failed, closed on its worker, freed.
 *
 * It owns its copy of the configuration and what its kind keeps; device and worker are borrowed.
 * The worker writes what it finds at opening into a struct of its own, and the loop copies that
 * after on_done; only the worker uses impl. A failed pool stays, so that people can ask what is
 * wrong with it.
 */
#include "daemon/pool/pool_internal.h"
#include "daemon/util/log.h"
#include "daemon/util/memfd.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const struct pool_ops *find_ops(enum pool_kind kind)
{
	for (size_t i = 0; pool_kinds[i]; i++)
		if (pool_kinds[i]->kind == kind)
			return pool_kinds[i];
	return NULL;
}

static uint64_t find_physical(const struct pool *pool)
{
	if (!kind_of(pool->config.kind)->on_gpu)
		return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	return pool->device ? pool->device->bytes : 0;
}

/* A pool can't be larger than its GPU, because the rest could never be allocated. The host may swap
 * and overcommit, so an administrator's number is taken as it is. */
static uint64_t find_size(const struct pool *pool)
{
	const struct config_size *asked = &pool->config.size;
	uint64_t physical = find_physical(pool);
	uint64_t size = asked->bytes;

	if (asked->percent > 0)
		size = (uint64_t)((double)physical * (asked->percent / 100));
	if (kind_of(pool->config.kind)->on_gpu && pool->device && size > physical)
		size = physical;
	return size;
}

static int copy_ids(struct id_list *list)
{
	const uint32_t *from = list->ids;

	list->ids = NULL;
	if (list->n == 0)
		return 0;

	list->ids = calloc(list->n, sizeof(*list->ids));
	if (!list->ids)
		return -ENOMEM;
	memcpy(list->ids, from, list->n * sizeof(*from));
	return 0;
}

static void free_ids(struct pool_config *config)
{
	free(config->allow_users.ids);
	free(config->allow_groups.ids);
}

static int copy_config(const struct pool_config *from, struct pool_config *ret)
{
	struct pool_config copy = *from;
	int users = copy_ids(&copy.allow_users), groups = copy_ids(&copy.allow_groups);

	if (users < 0 || groups < 0) {
		free_ids(&copy);
		return -ENOMEM;
	}
	*ret = copy;
	return 0;
}

/* A pool that can't be opened goes through the worker, too, so that on_ready never comes before
 * pool_new() has returned. */
static void run_open(struct job *job)
{
	struct pool *pool = container_of(job, struct pool, job);

	if (pool->why[0])
		pool->open_result = fault(&pool->open_fault, CODE_POOL_FAILED, "%s", pool->why);
	else
		pool->open_result = pool->ops->open(pool, &pool->found, &pool->open_fault);
}

static void set_failed(struct pool *pool)
{
	struct log_about about = { .message_id = LOG_ID_POOL_FAILED, .pool = pool->config.name };

	pool->state = POOL_FAILED;
	snprintf(pool->why, sizeof(pool->why), "%.*s", (int)sizeof(pool->why) - 1,
		 pool->open_fault.text);
	log_write(LOG_ERR, &about, "pool \"%s\" has failed: %s", pool->config.name, pool->why);
}

static void set_ready(struct pool *pool)
{
	struct pool_opened *found = &pool->found;
	uint64_t whole = pool->size - pool->size % found->granularity;

	pool->granularity = found->granularity;
	pool->numa_node = found->numa_node;
	if (found->fd >= 0)
		pool->pool_fd = take_fd(&found->fd);
	pool->max_block = whole;
	if (found->max_block && found->max_block < whole)
		pool->max_block = found->max_block;
	pool->state = POOL_READY;
	pool->opened = true;
	gpu_group_join(pool);
}

static void on_opened(struct job *job)
{
	struct pool *pool = container_of(job, struct pool, job);

	if (pool->open_result < 0) {
		set_failed(pool);
		pool_call_failed(pool, &pool->open_fault);
	} else {
		set_ready(pool);
	}

	if (pool->closing)
		pool_close_if_done(pool);
	else
		pool->on_ready(pool, pool->ready_arg);
	pool_requests_resume(pool);
}

static void find_fault(struct pool *pool, const char *why)
{
	const struct kind *kind = kind_of(pool->config.kind);

	if (!pool->ops)
		snprintf(pool->why, sizeof(pool->why),
			 "built without the CUDA Toolkit: no %s pools", kind->word);
	else if (kind->by_driver && !pool->device)
		snprintf(pool->why, sizeof(pool->why), "%s", why && *why ? why : "no GPU");
}

/* Makes a pool that is not opened yet. */
static int make(const struct pool_config *config, struct worker *worker, struct pool **ret)
{
	_cleanup_(free_ptr) struct pool *pool = calloc(1, sizeof(*pool));
	int err;

	if (!pool)
		return -ENOMEM;

	err = copy_config(config, &pool->config);
	if (err < 0)
		return err;

	pool->ops = find_ops(config->kind);
	pool->worker = worker;
	pool->numa_node = config->numa_node;
	pool->pool_fd = -1;
	list_init(&pool->link);
	list_init(&pool->pending);
	list_init(&pool->flushes);
	list_init(&pool->device_link);
	pool_requests_init(pool);

	uv_timer_init(worker_loop(worker), &pool->aging); /* never fails in libuv 1.x */
	uv_unref((uv_handle_t *)&pool->aging);
	pool->aging.data = pool;
	*ret = take_ptr(pool);
	return 0;
}

static void start(struct pool *pool, struct device *device, struct worker *worker, const char *why,
		  void (*on_ready)(struct pool *pool, void *arg), void *arg)
{
	assert(worker && on_ready);

	pool->device = device;
	if (device && device != pool->adopted)
		list_insert(&device->pools, &pool->device_link);
	pool->worker = worker;
	pool->size = find_size(pool);
	pool->on_ready = on_ready;
	pool->ready_arg = arg;
	find_fault(pool, why);
	pool->found = (struct pool_opened){ .numa_node = pool->numa_node, .fd = -1 };

	pool->job.run = run_open;
	pool->job.on_done = on_opened;
	worker_submit(worker, &pool->job);
}

int pool_new(const struct pool_config *config, struct device *device, struct worker *worker,
	     const char *why, void (*on_ready)(struct pool *pool, void *arg), void *arg,
	     struct pool **ret)
{
	int err = make(config, worker, ret);

	if (err == 0)
		start(*ret, device, worker, why, on_ready, arg);
	return err;
}

int pool_adopt(const struct pool_config *config, uint32_t id, uint64_t size, uint64_t granularity,
	       const struct device *known, struct worker *worker, struct pool **ret)
{
	_cleanup_(free_ptr) struct device *device = NULL;
	struct pool *pool;
	int err;

	if (known) {
		device = malloc(sizeof(*device));
		if (!device)
			return -ENOMEM;
		*device = *known;
		list_init(&device->pools);
	}
	err = make(config, worker, &pool);
	if (err < 0)
		return err;

	pool->id = id;
	pool->size = size;
	pool->granularity = granularity;
	pool->adopted = take_ptr(device);
	pool->device = pool->adopted;
	pool->is_adopted = true;
	*ret = pool;
	return 0;
}

int pool_start(struct pool *pool, const struct pool_config *config, struct device *device,
	       struct worker *worker, const char *why,
	       void (*on_ready)(struct pool *pool, void *arg), void *arg)
{
	int err = pool_reload(pool, config);

	if (err < 0)
		return err;
	pool->config.size = config->size;
	pool->config.allocate = config->allocate;
	pool->config.builtin = config->builtin;
	start(pool, device ? device : pool->device, worker, why, on_ready, arg);
	return 0;
}

void pool_retire(struct pool *pool, const char *why)
{
	pool->state = POOL_RETIRED;
	snprintf(pool->why, sizeof(pool->why), "%s", why);
	pool_requests_resume(pool);
}

int pool_reload(struct pool *pool, const struct pool_config *fresh)
{
	struct pool_config copy;
	int err = copy_config(fresh, &copy);

	if (err < 0)
		return err;

	free_ids(&pool->config);
	pool->config.allow_users = copy.allow_users;
	pool->config.allow_groups = copy.allow_groups;
	pool->config.restricted = copy.restricted;
	pool->config.share = copy.share;
	pool->config.pending_max_age = copy.pending_max_age;
	return 0;
}

static void on_timers_closed(uv_handle_t *handle)
{
	struct pool *pool = handle->data;

	if (pool->on_closed)
		pool->on_closed(pool->closed_arg);
	free_ids(&pool->config);
	free(pool->adopted);
	free(pool);
}

static void on_aging_closed(uv_handle_t *handle)
{
	struct pool *pool = handle->data;

	uv_close((uv_handle_t *)&pool->retry, on_timers_closed);
}

static void run_close(struct job *job)
{
	struct pool *pool = container_of(job, struct pool, job);

	if (pool->opened)
		pool->ops->close(pool);
	close_fd(&pool->pool_fd);
}

static void on_close_done(struct job *job)
{
	struct pool *pool = container_of(job, struct pool, job);

	uv_close((uv_handle_t *)&pool->aging, on_aging_closed);
}

void pool_close_if_done(struct pool *pool)
{
	if (!pool->closing || (pool->state == POOL_STARTING && pool->on_ready) ||
	    !list_empty(&pool->requests))
		return;

	assert(pool->blocks == 0 && pool->used == 0 && list_empty(&pool->waiting));

	/* The worker runs the frees first. */
	pool_flush(pool);
	pool->job.run = run_close;
	pool->job.on_done = on_close_done;
	worker_submit(pool->worker, &pool->job);
}

void pool_close(struct pool *pool, void (*on_closed)(void *arg), void *arg)
{
	assert(!pool->closing);

	pool->closing = true;
	pool->on_closed = on_closed;
	pool->closed_arg = arg;
	list_drop(&pool->link);
	list_drop(&pool->device_link);
	pool_close_if_done(pool);
}

bool pool_is_empty(const struct pool *pool)
{
	return pool->state == POOL_READY && !pool->closing && pool->blocks == 0 &&
	       pool->pending_count == 0 && pool->freed == pool->flushed &&
	       list_empty(&pool->requests) && list_empty(&pool->waiting);
}

static bool id_list_has(const struct id_list *list, uint32_t id)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->ids[i] == id)
			return true;
	return false;
}

bool pool_allows(const struct pool *pool, uid_t uid, const gid_t *gids, size_t n_gids)
{
	if (!pool->config.restricted || id_list_has(&pool->config.allow_users, uid))
		return true;

	for (size_t i = 0; i < pool->config.allow_groups.n; i++)
		if (ids_have(gids, n_gids, pool->config.allow_groups.ids[i]))
			return true;
	return false;
}

void pool_seal_block(struct block *block)
{
	if (block->fd_read_only < 0)
		return;
	close_fd(&block->fd);
	block->fd = take_fd(&block->fd_read_only);
}

void pool_withdraw_block(const struct pool *pool, struct block *block)
{
	if (kind_of(pool->config.kind)->by_driver)
		return;
	memfd_withdraw(&block->fd);
	close_fd(&block->fd_read_only);
	close_fd(&block->fd_original);
}

bool pool_block_is_held(const struct pool *pool, const struct block *block)
{
	return !kind_of(pool->config.kind)->by_driver && block->fd >= 0 && memfd_is_held(block->fd);
}

/* Opens what is lent of a host block anew: what is kept may be the memory's first fd. A read-only
 * fd is as good, but nobody can write to that block any more. */
static int open_lent(int fd, bool sealed, struct block *ret)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	if ((flags & O_ACCMODE) == O_RDONLY && !sealed)
		return -EBADF;
	ret->fd_read_only = memfd_reopen(fd, O_RDONLY);
	if (ret->fd_read_only < 0)
		return ret->fd_read_only;
	ret->fd = sealed ? -1 : memfd_reopen_writable(fd);
	return sealed || ret->fd >= 0 ? 0 : ret->fd;
}

int pool_adopt_block(struct pool *pool, uint64_t bytes, int fd, bool sealed,
		     const unsigned char *record, struct block *ret)
{
	struct block block = BLOCK_NONE;
	bool host = !kind_of(pool->config.kind)->by_driver;
	int r = host ? open_lent(fd, sealed, &block) : 0;

	block.pending = calloc(1, sizeof(*block.pending));
	block.pointer = record ? calloc(1, sizeof(*block.pointer)) : NULL;
	if (r == 0 && (!block.pending || (record && !block.pointer)))
		r = -ENOMEM;
	if (r < 0) {
		close_fd(&block.fd_read_only);
		close_fd(&block.fd);
		free(block.pending);
		free(block.pointer);
		return r;
	}
	block.pending->pool = pool;
	block.bytes = bytes;
	block.unverified = pool->ops && pool->ops->verify;
	if (host)
		close_fd(&fd);
	else
		block.fd = fd;
	if (record)
		memcpy(block.pointer->record, record, RECORD_BYTES);
	if (sealed)
		pool_seal_block(&block);
	pool->used += bytes;
	pool->blocks++;
	*ret = block;
	return 0;
}
