/* SPDX-License-Identifier: MIT
 *
 * Memory: used memory, pending memory, and sessions that wait for space. A pool is full when used
 * and pending memory fill it; pending memory is given back before a request is refused.
 */
#include "tests/model/model.h"

#include <string.h>

struct model_pool *model_add_pool(struct model *m, enum model_kind kind, const char *name)
{
	struct model_pool *pool = calloc(1, sizeof(*pool));

	pool->kind = kind;
	strncpy(pool->name, name, sizeof(pool->name) - 1);
	list_init(&pool->pending);
	list_init(&pool->waiting);
	list_insert(&m->pools, &pool->link);
	return pool;
}

struct model_pool *model_pool_by_id(struct model *m, uint32_t id)
{
	struct model_pool *pool;

	list_foreach (pool, &m->pools, link)
		if (pool->id == id)
			return pool;
	return NULL;
}

struct model_pool *model_pool_by_name(struct model *m, const char *name)
{
	struct model_pool *pool;

	list_foreach (pool, &m->pools, link)
		if (strcmp(pool->name, name) == 0 && !pool->inherited)
			return pool;
	return NULL;
}

bool model_may_use(const struct model_process *p, const struct model_pool *pool)
{
	return p->admin || p->trusted || !pool->closed_shop;
}

uint64_t model_pending_bytes(const struct model_pool *pool)
{
	const struct model_block *block;
	uint64_t sum = 0;

	list_foreach (block, &pool->pending, link)
		sum += block->bytes;
	return sum;
}

unsigned model_pending(const struct model_pool *pool)
{
	const struct model_block *block;
	unsigned n = 0;

	list_foreach (block, &pool->pending, link)
		n++;
	return n;
}

uint64_t model_used(const struct model *m, const struct model_pool *pool)
{
	const struct model_buffer *b;
	uint64_t sum = 0;

	list_foreach (b, &m->buffers, link)
		if (b->pool == pool)
			sum += b->allocated;
	return sum;
}

unsigned model_blocks(const struct model *m, const struct model_pool *pool)
{
	const struct model_buffer *b;
	unsigned n = 0;

	list_foreach (b, &m->buffers, link)
		n += b->pool == pool && b->allocated;
	return n;
}

void model_empty(struct model_pool *pool)
{
	struct model_block *block;

	list_foreach (block, &pool->pending, link) {
		list_drop(&block->link);
		free(block);
	}
}

static struct model_block *find_match(const struct model_buffer *b, uint64_t bytes)
{
	struct model_block *block;

	list_foreach (block, &b->pool->pending, link)
		if (block->bytes == bytes && block->uid == b->uid && !block->foreign)
			return block;
	return NULL;
}

/* Pending memory serves the same user and size again, if no other user ever had it mapped. Which
 * one of several equal blocks is undefined. Memory of an earlier daemon is used again once the
 * driver has confirmed that it exists, some time after the start. */
static bool reuse(struct model_buffer *b, uint64_t bytes)
{
	struct model_block *block = find_match(b, bytes);

	if (!block || (b->pool->kind != MODEL_VMM && b->pool->kind != MODEL_PINNED))
		return false;
	b->pool->vague = b->pool->vague || block->inherited;
	list_drop(&block->link);
	b->memory = block->memory;
	free(block);
	return true;
}

static bool fits(const struct model *m, const struct model_pool *pool, uint64_t bytes)
{
	return model_used(m, pool) + model_pending_bytes(pool) + bytes <= pool->size;
}

int model_allocate(struct model *m, struct model_buffer *b)
{
	struct model_pool *pool = b->pool;
	uint64_t bytes;

	if (pool->fails)
		return CODE_POOL_FAILED;
	bytes = model_round(pool, b->bytes);
	if (bytes > pool->size / pool->granularity * pool->granularity)
		return CODE_TOO_LARGE;
	b->memory = 0;
	b->reused = reuse(b, bytes);
	if (!b->reused && !fits(m, pool, bytes))
		model_empty(pool);
	if (!b->reused && !fits(m, pool, bytes))
		return CODE_POOL_FULL;
	b->allocated = bytes;
	return CODE_OK;
}

/* Numba's rule: more blocks than the limit, compared after one was added. The pools are too small
 * for the limit of bytes. */
static bool overflows(const struct model_pool *pool)
{
	return model_pending(pool) > MODEL_PENDING_COUNT;
}

void model_release(struct model *m, struct model_buffer *b)
{
	struct model_pool *pool = b->pool;
	struct model_block *block;

	if (!b->allocated)
		return;
	if (!pool->inherited) {
		block = calloc(1, sizeof(*block));
		block->bytes = b->allocated;
		block->memory = b->memory;
		block->uid = b->uid;
		block->foreign = b->foreign;
		block->inherited = b->inherited;
		list_insert(&pool->pending, &block->link);
		if (overflows(pool))
			model_empty(pool);
		pool->poked = true;
		pool->vague = pool->vague || ++pool->frees > 1;
	}
	b->allocated = 0;
}

/* Tries a waiting session: it gets its buffer or goes on waiting. */
static void try_again(struct model *m, struct model_session *s)
{
	struct model_buffer *b = s->creating;
	int code = model_allocate(m, b);

	if (code == CODE_POOL_FULL)
		return;
	list_drop(&s->wait_link);
	s->waits = MODEL_IDLE;
	s->creating = NULL;
	model_want_less(m);
	if (code == CODE_OK)
		code = model_grant(m, s, b, MODEL_WRITE);
	if (code == CODE_OK)
		return;
	model_refuse(s, code);
	model_drop_name(m, b);
	model_maybe_free(m, b);
}

void model_settle(struct model *m)
{
	struct model_pool *pool;
	struct model_session *s;
	bool again;

	do {
		again = false;
		list_foreach (pool, &m->pools, link) {
			if (!pool->poked)
				continue;
			pool->poked = false;
			again = true;
			list_foreach (s, &pool->waiting, wait_link)
				try_again(m, s);
		}
	} while (again);
}

void model_flush(struct model *m, struct model_session *s, const char *name)
{
	struct model_pool *pool = *name ? model_pool_by_name(m, name) : NULL;

	if (*name && !pool)
		model_refuse(s, CODE_NOT_FOUND);
	else if (pool && !model_may_use(s->process, pool))
		model_refuse(s, CODE_ACCESS);
	else
		s->reply.what = MODEL_DONE;
	if (s->reply.what == MODEL_ERROR)
		return;
	list_foreach (pool, &m->pools, link) {
		if ((*name && strcmp(pool->name, name) != 0) || !model_may_use(s->process, pool))
			continue;
		model_empty(pool);
		pool->vague = false;
	}
}
