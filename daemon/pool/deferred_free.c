/* SPDX-License-Identifier: MIT
 *
 * Deferred frees: a freed block waits on its pool's list, for pending-max-age seconds of its own.
 * The whole list is given back when it has grown too long or too large, when an allocation would
 * fail otherwise, or on request. The first two reasons are also Numba's (numba-cuda,
 * _PendingDeallocs). A large block hardly waits: other programs on the GPU can't get what waits
 * here, and making it anew takes less time than filling it.
 *
 * Waiting makes a free cheap, and the next CREATE of the same user and size gets the block at once.
 * The list owns its blocks; a job owns a flushed one, until the worker has given it back. Numba
 * loses the rest of its list when one free fails; here each block is on its own, and one that can't
 * be freed counts as lost and is never reused.
 */
#include "daemon/pool/pool_internal.h"
#include "daemon/util/log.h"
#include "proto/base/size.h"
#include "proto/systemd/systemd.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>

#define LARGE (64u << 20)
#define LARGE_MS 20u
#define BARRIER_MS 5000
#define LOOKS 100
#define COUNT_MAX 10u /* as Numba's NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT */
#define PINNED_MAX (1u << 30)

/* systemd, or the keeper, was just told to forget its copy of a block's fd. If that copy was the
 * last, its close would free the memory: for GiB of it that takes 0.2 s and more, in which systemd
 * reads nothing, and the loop would wait for room in its queue. So the worker frees a large block
 * when all that was sent has been read (BARRIER=1 of sd_notify(3)). Returns a descriptor that hangs
 * up then, or -1. */
static int barrier(const struct block *block)
{
	int ends[2];

	if (block->bytes <= LARGE || !systemd_keeps_fds() || pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	systemd_notify_fd(ends[1], "BARRIER=1"); /* after an error it hangs up at once */
	close_fd(&ends[1]);
	return ends[0];
}

static void wait_for_barrier(struct pending *p)
{
	struct pollfd end = { .fd = p->barrier };

	if (p->barrier >= 0)
		poll(&end, 1, BARRIER_MS);
	close_fd(&p->barrier);
}

/* Other programs take and give back memory at the same time. So the memory counts as kept only if
 * the free memory stays what it was for LOOKS ms: had the block been freed, another program would
 * have to have taken as much in the moment between two looks. The driver gives a large block back
 * in parts, which are seen. */
static bool is_kept(const struct pending *p, uint64_t before)
{
	uint64_t slack = p->block.bytes / 16, now;

	for (int i = 0; i < LOOKS; i++) {
		if (!nvml_free_bytes(p->pool->device, &now) || now > before + slack ||
		    now + slack < before)
			return false;
		poll(NULL, 0, 1);
	}
	return true;
}

static void run_free(struct job *job)
{
	struct pending *p = container_of(job, struct pending, job);
	struct fault f;
	uint64_t before;
	bool looks;

	wait_for_barrier(p);
	looks = p->on_kept && nvml_free_bytes(p->pool->device, &before);
	p->result = p->pool->ops->free(p->pool, &p->block, &f);
	p->kept = looks && is_kept(p, before);
	p->fault = p->result < 0 ? malloc(sizeof(f)) : NULL;
	if (p->fault)
		*p->fault = f;
}

static void count_freed(struct pool *pool)
{
	pool->freed++;
	while (!list_empty(&pool->flushes)) {
		struct flush *f = list_first(&pool->flushes, struct flush, link);

		if (f->until > pool->freed)
			return;
		list_drop(&f->link);
		f->on_done(f);
	}
}

static void on_freed(struct job *job)
{
	struct pending *p = container_of(job, struct pending, job);
	struct pool *pool = p->pool;

	if (p->result < 0) {
		struct log_about about = { LOG_ID_NOT_FREED, .pool = pool->config.name };

		pool->lost += p->block.bytes;
		log_write(LOG_ERR, &about, "pool \"%s\": %s could not be freed and are lost: %s",
			  pool->config.name, size_format(p->block.bytes).text,
			  p->fault ? p->fault->text : "the daemon is out of memory");
		if (p->fault)
			pool_call_failed(pool, p->fault);
	}
	if (p->kept)
		p->on_kept(p->kept_arg, p->kept_id, pool, p->block.bytes);
	free(p->block.pointer);
	free(p->fault);
	free(p);
	pool_requests_retry(pool);
	count_freed(pool);
}

static void take(struct pending *p)
{
	list_drop(&p->job.link);
	p->pool->pending_bytes -= p->block.bytes;
	p->pool->pending_count--;
}

static void give_back(struct pending *p)
{
	take(p);
	p->job.run = run_free;
	p->job.on_done = on_freed;
	p->barrier = barrier(&p->block);
	worker_submit(p->pool->worker, &p->job);
	p->pool->flushed++;
}

void pool_flush(struct pool *pool)
{
	struct pending *p;

	list_foreach (p, &pool->pending, job.link)
		give_back(p);
	uv_timer_stop(&pool->aging);
	pool->renew_now = true;
}

static uint64_t index_bit(const struct pool *pool)
{
	return (uint64_t)1 << pool->index;
}

bool pool_flush_wait(struct pool *pool, struct flush *f)
{
	if (pool->freed == pool->flushed)
		return false;
	if (pool_stuck(pool)) {
		f->late |= index_bit(pool);
		return false;
	}
	f->until = pool->flushed;
	list_insert(&pool->flushes, &f->link);
	return true;
}

void pool_flush_give_up(struct pool *pool)
{
	struct flush *f;

	list_drain (f, &pool->flushes, link) {
		f->late |= index_bit(pool);
		f->on_done(f);
	}
}

static void on_aging(uv_timer_t *timer)
{
	struct pool *pool = timer->data;
	uint64_t now = uv_now(timer->loop);
	struct pending *p;

	list_foreach (p, &pool->pending, job.link) {
		if (p->due_ms > now) {
			uv_timer_start(timer, on_aging, p->due_ms - now, 0);
			return;
		}
		give_back(p);
	}
}

/* Puts it into the list, which is in the order of due_ms. If the timer runs, it is due with the
 * first block, or earlier: then that one was reused. */
static void start_aging(struct pending *p, uint64_t wait_ms)
{
	uv_timer_t *timer = &p->pool->aging;
	struct list *at = p->pool->pending.next;

	uv_update_time(timer->loop);
	p->due_ms = uv_now(timer->loop) + wait_ms;
	while (at != &p->pool->pending &&
	       container_of(at, struct pending, job.link)->due_ms <= p->due_ms)
		at = at->next;
	list_drop(&p->job.link);
	list_insert(at, &p->job.link);
	if (p->pool->pending.next == &p->job.link)
		uv_timer_start(timer, on_aging, wait_ms, 0);
}

/* What other programs on a GPU miss at most. */
uint64_t pool_pending_max(const struct pool *pool)
{
	return pool->config.kind == POOL_PINNED ? PINNED_MAX : 256u << 20;
}

static bool is_large(const struct pending *p)
{
	return p->block.bytes > (p->pool->config.kind == POOL_PINNED ? PINNED_MAX : LARGE);
}

/* A large block is made anew in less time than it takes to fill it; pinned memory is not: 16 ms for
 * 64 MiB, 390 ms for 1 GiB (driver 580). But the driver clears what it takes back of a GPU, and a
 * process that maps memory waits for that: 8 ms for 16 GiB. Workers go on to the next generation of
 * a model at the same time: the last one frees the old generation while others map the new one. */
static uint64_t wait_ms(const struct pending *p)
{
	const struct pool_config *config = &p->pool->config;
	uint64_t age_ms = config->pending_max_age * (uint64_t)1000;

	if (!is_large(p))
		return age_ms;
	return config->kind == POOL_VMM && age_ms ? LARGE_MS : 0;
}

/* Numba compares after adding, and strictly: with a limit of 10 the eleventh free gives all eleven
 * back (numba-cuda, cudadrv/driver.py, _PendingDeallocs.add_item). */
static bool overflows(const struct pool *pool)
{
	const struct pending *p;
	uint32_t count = 0;
	uint64_t bytes = 0;

	list_foreach (p, &pool->pending, job.link) {
		if (is_large(p))
			continue;
		count++;
		bytes += p->block.bytes;
	}
	return count > COUNT_MAX || bytes > pool_pending_max(pool);
}

/* Closes the block's fds and forgets it, without a driver call. */
static void drop(struct pool *pool, struct block *block)
{
	close_fd(&block->fd);
	close_fd(&block->fd_read_only);
	close_fd(&block->fd_original);
	pool->used -= block->bytes;
	pool->blocks--;
	free(block->pointer);
	free(block->pending);
	*block = BLOCK_NONE;
}

/* No process can allocate from a retired pool or scrub it. The memory of a retired mempool is
 * given back as a whole, with the pool's fd, after its last block; a block with an fd of its own is
 * given back with that. */
static void free_retired(struct pool *pool, struct block *block)
{
	drop(pool, block);
	if (pool->blocks == 0)
		close_fd(&pool->pool_fd);
}

void pool_free(struct pool *pool, struct block *block, uid_t uid, bool foreign)
{
	struct pending *p = take_ptr(block->pending);
	uint64_t ms;

	assert(p && p->pool == pool);

	if (pool->state == POOL_RETIRED) {
		block->pending = p;
		free_retired(pool, block);
		return;
	}
	p->block = *block;
	p->uid = uid;
	p->foreign = foreign;
	*block = BLOCK_NONE;

	list_insert(&pool->pending, &p->job.link);
	pool->pending_bytes += p->block.bytes;
	pool->pending_count++;
	pool->used -= p->block.bytes;
	pool->blocks--;

	ms = wait_ms(p);
	if (ms == 0)
		give_back(p);
	else if (overflows(pool))
		pool_flush(pool);
	else
		start_aging(p, ms);
	pool_requests_retry(pool);
}

void pool_expect_freed(struct block *block, pool_on_kept *on_kept, void *arg, uint64_t id)
{
	struct pending *p = block->pending;

	if (block->bytes <= LARGE || !kind_of(p->pool->config.kind)->on_gpu)
		return;
	p->on_kept = on_kept;
	p->kept_arg = arg;
	p->kept_id = id;
}

void pool_let_go(struct pool *pool, struct block *block)
{
	drop(pool, block);
	pool->let_go = true;
}

bool pending_reuse(struct pool *pool, uint64_t bytes, uid_t uid, struct block *ret)
{
	struct pending *p;

	if (!pool->ops->reuses_pending)
		return false;

	list_foreach (p, &pool->pending, job.link) {
		if (p->block.bytes != bytes || p->uid != uid || p->foreign || p->block.unverified)
			continue;
		if (is_large(p)) /* whether a process keeps it is seen when it is freed */
			continue;

		take(p);
		*ret = p->block;
		ret->pending = p;
		return true;
	}
	return false;
}
