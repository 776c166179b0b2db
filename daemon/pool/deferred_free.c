/* SPDX-License-Identifier: MIT
 *
 * Deferred frees, by Numba's rule: a freed block waits on its pool's list, and the whole list is
 * given back when it has grown too long or too large, when an allocation would else fail, when
 * nobody has asked for a while, or on request.
 *
 * Waiting makes a free cheap for who does it and lets the next CREATE of the same user and size
 * have the block at once. Blocks on the list are owned by it; a flushed one by its job, until the
 * worker has given it back. Numba loses the rest of its list when one free fails; here each block
 * stands alone, and one that can't be freed is counted as lost, never handed on.
 */
#include "daemon/pool/deferred_free.h"

#include "daemon/pool/failure.h"
#include "daemon/pool/space.h"
#include "daemon/pool/stuck.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Long enough for a pipeline that frees and creates to find its blocks again, short enough that
 * another program on the GPU gets the memory back while a person still looks. */
#define IDLE_MS 10000u

static void run_free(struct job *job)
{
	struct pending *p = container_of(job, struct pending, job);

	struct fault f;

	p->result = p->pool->ops->free(p->pool, &p->block, &f);
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
		struct log_about about = { .pool = pool->config.name };

		pool->lost += p->block.bytes;
		log_write(LOG_ERR, &about, "pool \"%s\": %s could not be freed and are lost: %s",
			  pool->config.name, size_format(p->block.bytes).text,
			  p->fault ? p->fault->text : "the daemon is out of memory");
		if (p->fault)
			failure_note(pool, p->fault);
	}
	free(p->block.pointer);
	free(p->fault);
	free(p);
	space_poke(pool);
	count_freed(pool);
}

static void take(struct pending *p)
{
	list_drop(&p->job.link);
	p->pool->pending_bytes -= p->block.bytes;
	p->pool->pending_count--;
}

void pool_flush(struct pool *pool)
{
	struct pending *p;

	list_foreach (p, &pool->pending, job.link) {
		take(p);
		p->job.run = run_free;
		p->job.on_done = on_freed;
		worker_submit(pool->worker, &p->job);
		pool->flushed++;
	}
	uv_timer_stop(&pool->idle);
}

static uint64_t slot_bit(const struct pool *pool)
{
	return (uint64_t)1 << pool->index;
}

bool pool_flush_wait(struct pool *pool, struct flush *f)
{
	if (pool->freed == pool->flushed)
		return false;
	if (stuck_why(pool)) {
		f->late |= slot_bit(pool);
		return false;
	}
	f->until = pool->flushed;
	list_insert(&pool->flushes, &f->link);
	return true;
}

void pool_flush_give_up(struct pool *pool)
{
	while (!list_empty(&pool->flushes)) {
		struct flush *f = list_first(&pool->flushes, struct flush, link);

		f->late |= slot_bit(pool);
		list_drop(&f->link);
		f->on_done(f);
	}
}

static void on_idle(uv_timer_t *timer)
{
	pool_flush(timer->data);
}

void pending_touch(struct pool *pool)
{
	if (list_empty(&pool->pending))
		uv_timer_stop(&pool->idle);
	else
		uv_timer_start(&pool->idle, on_idle, IDLE_MS, 0);
}

/* Numba compares after it has added, and strictly: with a limit of 10 the eleventh free gives all
 * eleven back (numba-cuda, cudadrv/driver.py, _PendingDeallocs.add_item). */
static bool overflows(const struct pool *pool)
{
	const struct pool_config *c = &pool->config;

	return pool->pending_count > c->pending_max_count ||
	       (double)pool->pending_bytes > c->pending_max_ratio * (double)pool->size;
}

/* Without a word to the driver. */
static void drop(struct pool *pool, struct block *block)
{
	close_fd(&block->fd);
	close_fd(&block->fd_read_only);
	pool->used -= block->bytes;
	pool->blocks--;
	free(block->pointer);
	free(block->pending);
	*block = BLOCK_NONE;
}

/* Nobody is left who could allocate from it or scrub it: the memory of an inherited mempool goes as
 * a whole, with the pool's fd, when its last block has gone; a block with an fd of its own goes
 * with that. */
static void free_inherited(struct pool *pool, struct block *block)
{
	drop(pool, block);
	if (pool->blocks == 0)
		close_fd(&pool->pool_fd);
}

/* One that is open for reading only needs no twin, and nobody writes to that block any more. The
 * first daemons left one for writing of a sealed block, too; who reads that is not to be lent it.
 */
static int open_twin(int fd, bool sealed, int *ret)
{
	int flags = fcntl(fd, F_GETFL);
	char path[32];

	if (flags < 0)
		return -errno;
	if ((flags & O_ACCMODE) == O_RDONLY)
		return sealed ? 0 : -EBADF;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret = open(path, O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? -errno : 0;
}

int pool_adopt_block(struct pool *pool, uint64_t bytes, int fd, bool sealed,
		     const unsigned char *record, struct block *ret)
{
	struct block block = BLOCK_NONE;
	int r = pool->config.kind == POOL_HOST ? open_twin(fd, sealed, &block.fd_read_only) : 0;

	if (r < 0)
		return r;
	block.pending = calloc(1, sizeof(*block.pending));
	block.pointer = record ? calloc(1, sizeof(*block.pointer)) : NULL;
	if (!block.pending || (record && !block.pointer)) {
		close_fd(&block.fd_read_only);
		free(block.pending);
		free(block.pointer);
		return -ENOMEM;
	}
	block.pending->pool = pool;
	block.bytes = bytes;
	block.inherited = pool->ops && pool->ops->verify;
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

void pool_free(struct pool *pool, struct block *block, uid_t uid, bool foreign)
{
	struct pending *p = take_ptr(block->pending);

	assert(p && p->pool == pool);

	if (pool->state == POOL_INHERITED) {
		block->pending = p;
		free_inherited(pool, block);
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

	if (overflows(pool))
		pool_flush(pool);
	pending_touch(pool);
	space_poke(pool);
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
		if (p->block.bytes != bytes || p->uid != uid || p->foreign || p->block.inherited)
			continue;

		take(p);
		*ret = p->block;
		ret->pending = p;
		return true;
	}
	return false;
}
