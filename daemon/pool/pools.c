/* SPDX-License-Identifier: MIT
 *
 * From the configuration to pools. Without a [pool] section there are gpuN and gpuN-mempool for
 * each GPU, pinned beside the first one, and always host. A pool whose device is missing stays,
 * failed, with the reason for clients that ask; the others work. A mempool may be made anew while
 * the daemon runs; the fresh one has another id.
 */
#include "daemon/pool/pools.h"

#include "daemon/pool/pool_internal.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <stdio.h>
#include <string.h>

static void on_pool_ready(struct pool *pool, void *arg)
{
	struct pools *p = arg;

	if (pool && pool->state == POOL_READY && !p->closing)
		p->on_opened(pool, p->arg);
	if (--p->opening == 0 && !p->closing)
		p->on_ready(p->arg);
}

static void on_pool_failed(void *arg)
{
	struct pools *p = arg;

	if (!p->closing)
		p->on_failed(p->arg);
}

static void on_pool_closed(void *arg);

/* Keeps the order of ids, in which a FLUSH visits the pools; a journal lists pools in the order in
 * which it was written. */
static void insert_ordered(struct pools *p, struct pool *pool)
{
	struct list *before = p->all.prev;

	while (before != &p->all && container_of(before, struct pool, link)->id > pool->id)
		before = before->prev;
	list_insert(before->next, &pool->link);
}

/* The pool has its index until it is closed; an id is never used again. */
static int insert(struct pools *p, struct pool *pool)
{
	uint64_t taken = 0;
	struct pool *it;

	list_foreach (it, &p->all, link)
		taken |= (uint64_t)1 << it->index;
	p->open++;
	if (taken == UINT64_MAX) {
		pool_close(pool, on_pool_closed, p);
		return -E2BIG;
	}
	pool->index = (uint32_t)__builtin_ctzll(~taken);
	pool->on_failed = on_pool_failed;
	pool->failed_arg = p;
	insert_ordered(p, pool);
	return 0;
}

static struct pool *find_adopted(const struct pools *p, const struct pool_config *config)
{
	struct pool *it;

	list_foreach (it, &p->all, link)
		if (it->is_adopted && it->state == POOL_STARTING && !it->on_ready &&
		    it->config.kind == config->kind && strcmp(it->config.name, config->name) == 0)
			return it;
	return NULL;
}

/* A pool's name must keep meaning the same GPU, as its clients know it. */
static bool is_same_device(const struct pool *pool, const struct device *device)
{
	return pool->device ? device && memcmp(pool->device->uuid, device->uuid,
					       sizeof(device->uuid)) == 0
			    : !device;
}

/* The same for its NUMA node, where clients let the CPU reach its memory. */
static bool is_same_node(const struct pool *pool, const struct pool_config *config,
			 const struct device *device)
{
	int node = config->numa_node >= 0	      ? config->numa_node
		   : device && device->numa_node >= 0 ? device->numa_node
						      : 0;

	return config->kind != POOL_PINNED || pool->numa_node == node;
}

static int make_or_start(struct pools *p, const struct pool_config *config, struct device *device,
			 const char *why)
{
	struct worker *worker = device ? device->worker : p->worker;
	struct pool *pool = find_adopted(p, config);
	int r;

	if (pool && is_same_device(pool, device) && is_same_node(pool, config, device))
		return pool_start(pool, config, device, worker, why, on_pool_ready, p);
	if (pool)
		pool_retire(pool, *why ? why
				  : is_same_device(pool, device)
					  ? "its NUMA node is another one now"
					  : "its GPU is another one now");
	r = pool_new(config, device, worker, why, on_pool_ready, p, &pool);
	if (r < 0)
		return r;
	pool->id = ++p->last_id;
	return insert(p, pool);
}

static void make(struct pools *p, const struct pool_config *config)
{
	struct device *device = NULL;
	char why[320] = "";
	int r;

	if (kind_of(config->kind)->by_driver)
		device = devices_find(&p->devices, config->device);
	if (kind_of(config->kind)->by_driver && !device)
		snprintf(why, sizeof(why), "%s",
			 p->devices.n ? "no GPU fits its device= (gpushmctl doctor lists them)"
				      : p->devices.why_none);
	r = make_or_start(p, config, device, why);
	if (r < 0)
		log_error_id(LOG_ID_POOL_FAILED, "pool \"%s\" can't be made: %s", config->name,
			     strerror(-r));
	else
		p->opening++;
}

static void make_default(struct pools *p, enum pool_kind kind, const char *name,
			 const struct device *d)
{
	struct pool_config config;

	pool_config_default(kind, &config);
	config_restrict_mempool(p->config, &config);
	config.builtin = true;
	if (d)
		snprintf(config.device, sizeof(config.device), "%d", d->ordinal);
	snprintf(config.name, sizeof(config.name), "%s", name);
	make(p, &config);
}

static void make_defaults(struct pools *p)
{
	char name[POOL_NAME_MAX + 1];

	for (size_t i = 0; i < p->devices.n; i++) {
		const struct device *d = &p->devices.items[i];

		snprintf(name, sizeof(name), "gpu%d", d->ordinal);
		make_default(p, POOL_VMM, name, d);
		snprintf(name, sizeof(name), "gpu%d-mempool", d->ordinal);
		make_default(p, POOL_MEMPOOL, name, d);
	}
	if (p->devices.n)
		make_default(p, POOL_PINNED, "pinned", &p->devices.items[0]);
	else
		log_info("no GPU pools: %s", p->devices.why_none);
	make_default(p, POOL_HOST, "host", NULL);
}

/* If all memory is the host's, the driver is not loaded: that costs 9 MiB and 0.2 s (cuInit of
 * driver 580), and it may hang. */
static bool need_devices(const struct pools *p)
{
	bool needed = p->config->auto_pools;
	const struct pool *it;

	for (size_t i = 0; i < p->config->n_pools; i++)
		needed = needed || kind_of(p->config->pools[i].kind)->by_driver;
	list_foreach (it, &p->all, link)
		needed = needed || kind_of(it->config.kind)->by_driver;
	return needed;
}

static void run_probe(struct job *job)
{
	struct pools *p = container_of(job, struct pools, probe);

	if (p->needs_devices)
		devices_probe(&p->found);
}

/* Retires adopted pools that are no longer in the configuration. */
static void retire_rest(struct pools *p)
{
	struct pool *it;

	list_foreach (it, &p->all, link)
		if (it->state == POOL_STARTING && !it->on_ready)
			pool_retire(it, p->probed ? "it is not in the configuration any more"
						  : p->devices.why_none);
}

int pools_adopt(struct pools *p, const struct pool_config *config, uint32_t id, uint64_t size,
		uint64_t granularity, const struct device *known, int pool_fd, struct pool **ret)
{
	_cleanup_(close_fd) int fd = pool_fd;
	struct pool *pool = NULL;
	int r = pool_adopt(config, id, size, granularity, known, p->worker, &pool);

	if (r < 0)
		return r;
	pool->pool_fd = take_fd(&fd);
	if (id > p->last_id)
		p->last_id = id;
	r = insert(p, pool);
	if (r < 0)
		return r;
	if (!pool->ops || kind_opens_pool(config->kind))
		pool_retire(pool, "it is of an earlier gpushmd: its allocator ended with that");
	*ret = pool;
	return 0;
}

static void replace(struct pools *p, const struct pool *former)
{
	struct pool *pool = NULL;
	int r = pool_adopt(&former->config, ++p->last_id, former->size, former->granularity,
			   former->device, p->worker, &pool);

	if (r == 0)
		r = insert(p, pool);
	if (r < 0)
		log_error_id(LOG_ID_POOL_FAILED, "pool \"%s\" has no successor yet: %s",
			     former->config.name, strerror(-r));
}

struct pool *pools_by_id(const struct pools *p, uint32_t id)
{
	struct pool *it;

	list_foreach (it, &p->all, link)
		if (it->id == id)
			return it;
	return NULL;
}

void pools_replace_retired(struct pools *p)
{
	struct pool *it;

	list_foreach (it, &p->all, link)
		if (it->state == POOL_RETIRED && it->ops && !find_adopted(p, &it->config))
			replace(p, it);
}

static void make_all(struct pools *p)
{
	int r;

	p->made = true;
	r = devices_start(&p->devices, p->loop);
	if (r < 0) {
		devices_done(&p->devices);
		snprintf(p->devices.why_none, sizeof(p->devices.why_none),
			 "the GPUs' threads can't be started: %s", strerror(-r));
		log_error_id(LOG_ID_NO_GPU, "gpushmd goes on without a GPU: %s",
			     p->devices.why_none);
	}
	p->opening = 1; /* so that on_ready can't come before the last pool is made */
	if (p->config->auto_pools)
		make_defaults(p);
	for (size_t i = 0; i < p->config->n_pools; i++)
		make(p, &p->config->pools[i]);
	retire_rest(p);
	on_pool_ready(NULL, p);
}

static void on_probed(struct job *job)
{
	struct pools *p = container_of(job, struct pools, probe);

	p->probed = true;
	uv_timer_stop(&p->patience);
	if (p->made) {
		log_warning_id(
			LOG_ID_NO_GPU,
			"the driver has answered after all: gpushmctl restart has its GPUs used");
		return;
	}
	p->devices = p->found;
	p->found = (struct devices){ 0 };
	if (p->closing)
		p->on_closed(p->arg);
	else
		make_all(p);
}

static void on_impatient(uv_timer_t *timer)
{
	struct pools *p = timer->data;

	snprintf(
		p->devices.why_none, sizeof(p->devices.why_none),
		"the driver has not answered within %u s of the start (cuInit): nvidia-smi and the "
		"kernel's log may say why",
		p->config->driver_timeout);
	log_error_id(LOG_ID_NO_GPU, "gpushmd goes on without a GPU: %s", p->devices.why_none);
	if (!p->closing)
		make_all(p);
}

#define NEARLY_FULL 90u /* percent of the pool that buffers have */
#define NOT_FULL 80u	/* the log may say again that it is nearly full */

static void look_at_space(struct pool *pool)
{
	uint64_t used = pool->used + pool->lost, percent = pool->size / 100;

	if (pool->state != POOL_READY || used < NOT_FULL * percent)
		pool->nearly_full = false;
	else if (!pool->nearly_full && used >= NEARLY_FULL * percent && used > 0) {
		pool->nearly_full = true;
		log_write(LOG_NOTICE,
			  &(struct log_about){ .message_id = LOG_ID_POOL_NEARLY_FULL,
					       .pool = pool->config.name },
			  "pool \"%s\" is nearly full: buffers have %s of %s", pool->config.name,
			  size_format(used).text, size_format(pool->size).text);
	}
}

void pools_look(struct pools *p, uint32_t seconds)
{
	bool changed = false;
	struct pool *pool;

	for (size_t i = 0; i < p->devices.n; i++)
		changed = gpu_group_check_stuck(&p->devices.items[i], seconds) || changed;
	list_foreach (pool, &p->all, link) {
		look_at_space(pool);
		if (pool_stuck(pool))
			pool_flush_give_up(pool);
	}
	if (changed && !p->closing)
		p->on_failed(p->arg);
}

static bool is_busy(struct worker *w, uint32_t seconds)
{
	return w && worker_busy_ns(w) >= seconds * 1000000000ull;
}

bool pools_stuck(const struct pools *p, uint32_t seconds)
{
	bool stuck = is_busy(p->prober, seconds);

	for (size_t i = 0; i < p->devices.n; i++)
		stuck = stuck || is_busy(p->devices.items[i].worker, seconds);
	return stuck;
}

void pools_sweep(struct pools *p, void (*on_swept)(const struct pool *pool, void *arg), void *arg)
{
	struct pool *it;

	list_foreach (it, &p->all, link) {
		if (it->state != POOL_RETIRED || it->blocks > 0 || !list_empty(&it->waiting))
			continue;
		on_swept(it, arg);
		pool_close(it, on_pool_closed, p);
	}
}

/* ---- mempools that are made anew ---- */

static bool is_renewable(const struct pool *pool, uint64_t lent)
{
	uint64_t kept = pool->renew_now ? 0 : pool_pending_max(pool);

	return pool->config.kind == POOL_MEMPOOL && pool_is_empty(pool) && pool->lost == 0 &&
	       !pool_stuck(pool) && pool->peak > kept && !(lent >> pool->index & 1);
}

/* If the former one was used meanwhile, it stays. */
static void on_renewed(struct pool *pool, void *arg)
{
	struct pools *p = arg;
	struct pool *former = pools_by_id(p, p->renewed);

	p->renewed = 0;
	if (p->closing || pool->state != POOL_READY || !former || !pool_is_empty(former)) {
		pool_close(pool, on_pool_closed, p);
		return;
	}
	p->open--; /* insert() counts it again */
	pool->id = ++p->last_id;
	if (insert(p, pool) < 0)
		return;
	pool_retire(former, "it is empty, and a fresh one has taken its place");
	log_info("pool \"%s\": up to %s went back to GPU %d", pool->config.name,
		 size_format(former->peak).text, pool->device->ordinal);
	p->on_renewed(pool, p->arg);
}

void pools_renew(struct pools *p, uint64_t lent)
{
	struct pool *it, *pool;

	list_foreach (it, &p->all, link) {
		it->empty_looks = is_renewable(it, lent) ? it->empty_looks + 1 : 0;
		if (it->empty_looks == 0 || p->renewed || p->closing ||
		    (it->empty_looks <= it->config.pending_max_age && !it->renew_now))
			continue;
		if (pool_new(&it->config, it->device, it->worker, NULL, on_renewed, p, &pool) < 0)
			return;
		p->open++;
		p->renewed = it->id;
	}
}

int pools_init(struct pools *p, uv_loop_t *loop, const struct config *config,
	       void (*on_ready)(void *arg), void *arg)
{
	int r;

	*p = (struct pools){ .loop = loop, .config = config, .on_ready = on_ready, .arg = arg };
	list_init(&p->all);
	uv_timer_init(loop, &p->patience);
	p->patience.data = p;
	r = worker_new(loop, "gpushm-host", &p->worker);
	return r < 0 ? r : worker_new(loop, "gpushm-driver", &p->prober);
}

void pools_open(struct pools *p)
{
	p->needs_devices = need_devices(p);
	p->probe.run = run_probe;
	p->probe.on_done = on_probed;
	worker_submit(p->prober, &p->probe);
	uv_timer_start(&p->patience, on_impatient, p->config->driver_timeout * 1000ull, 0);
}

static void on_pool_closed(void *arg)
{
	struct pools *p = arg;

	if (--p->open == 0 && p->closing)
		p->on_closed(p->arg);
}

void pools_close(struct pools *p, void (*on_closed)(void *arg))
{
	struct pool *pool;

	p->closing = true;
	p->on_closed = on_closed;
	p->open++;
	list_foreach (pool, &p->all, link)
		pool_close(pool, on_pool_closed, p);
	/* While the driver is being probed there is no pool; on_probed() goes on from here. */
	if (p->made)
		on_pool_closed(p);
}

void pools_done(struct pools *p)
{
	uv_close((uv_handle_t *)&p->patience, NULL);
	devices_done(&p->devices);
	p->worker = worker_free(p->worker);
	p->prober = worker_free(p->prober);
	devices_done(&p->found);
}

/* A section of another kind is for the pool that a restart makes: its rules must not open a mempool
 * that still runs, whose clients reach all of its memory. */
void pools_reload(struct pools *p, const struct config *fresh)
{
	struct pool *pool;

	for (size_t i = 0; i < fresh->n_pools; i++) {
		list_foreach (pool, &p->all, link)
			if (pool->config.kind == fresh->pools[i].kind &&
			    strcmp(pool->config.name, fresh->pools[i].name) == 0 &&
			    pool_reload(pool, &fresh->pools[i]) < 0)
				log_error_id(LOG_ID_CONFIG,
					     "pool \"%s\": not reloaded: out of memory",
					     pool->config.name);
	}
}
