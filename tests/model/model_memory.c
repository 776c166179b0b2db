/* SPDX-License-Identifier: MIT
 *
 * Memory that comes and goes: leases that are away, twins, evictions and restores; and who goes
 * when a create finds no room. A use is a number that grows with each step: what was used in the
 * same step has no order.
 */
#include "tests/model/model.h"

/* ---- leases that are away ---- */

static bool is_suspendable(const struct model_buffer *b)
{
	return b->pool->kind != MODEL_MEMPOOL;
}

static int check_suspendable(const struct model_buffer *b)
{
	return b->state == MODEL_FILLING ? CODE_STATE
	       : is_suspendable(b)	 ? CODE_OK
					 : CODE_UNSUPPORTED;
}

void model_touch(struct model *m, struct model_buffer *b)
{
	b->used = m->now;
}

bool model_in_use(const struct model_buffer *b)
{
	const struct model_lease *l;

	list_foreach (l, &b->leases, buffer_link)
		if (!l->away)
			return true;
	return false;
}

void model_set_away(struct model *m, struct model_session *s, struct model_lease *l, bool away)
{
	int code = !l || (l->session != s && !(away && l->session->process == s->process))
			   ? CODE_NO_LEASE
		   : l->away != away || l->buffer->state == MODEL_FILLING
			   ? check_suspendable(l->buffer)
			   : CODE_OK;

	if (code != CODE_OK) {
		model_refuse(s, code);
		return;
	}
	s->reply.what = away ? MODEL_DONE : MODEL_ATTACH;
	s->reply.lease = l;
	s->reply.buffer = l->buffer;
	s->reply.again = true;
	if (l->away == away || l->buffer->hollow)
		return;
	l->away = away;
	model_touch(m, l->buffer);
	model_yield(m, l->buffer);
	model_settle(m);
}

/* ---- twins ---- */

static int check_pair(const struct model_buffer *fresh, const struct model_buffer *b)
{
	if (b->state != MODEL_SEALED || fresh->state == MODEL_SHARED || fresh->hollow)
		return CODE_STATE;
	if (fresh->uid != b->uid)
		return CODE_ACCESS;
	return fresh->bytes != b->bytes ? CODE_LAYOUT : check_suspendable(b);
}

/* The list is in the order of creation. */
static bool is_older(const struct model *m, const struct model_buffer *fresh,
		     const struct model_buffer *b)
{
	const struct model_buffer *it;

	list_foreach (it, &m->buffers, link)
		if (it == fresh || it == b)
			return it == fresh;
	return false;
}

static int check_twin(const struct model *m, const struct model_buffer *fresh,
		      const struct model_buffer *b)
{
	int code = check_pair(fresh, b);

	if (code == CODE_OK &&
	    (fresh->pool->kind == MODEL_VMM || fresh->pool->kind == MODEL_MEMPOOL))
		code = CODE_UNSUPPORTED;
	if (code == CODE_OK && b->twin)
		code = CODE_EXISTS;
	if (code == CODE_OK &&
	    (is_older(m, fresh, b) || b->twin_of || fresh->twin || fresh->twin_of))
		code = CODE_STATE;
	return code;
}

void model_hand_over_twin(struct model *m, struct model_session *s, struct model_lease *fresh,
			  struct model_lease *l)
{
	struct model_buffer *twin = fresh->buffer;
	int code;

	s->reply.what = MODEL_PUBLISHED;
	s->reply.buffer = twin;
	if (twin->twin_of == l->buffer)
		return;
	code = check_twin(m, twin, l->buffer);
	if (code != CODE_OK) {
		model_refuse(s, code);
		return;
	}
	if (twin->state == MODEL_FILLING)
		model_publish(m, s, fresh, MODEL_SEALED, NULL, false);
	twin->twin_of = l->buffer;
	l->buffer->twin = twin;
	l->buffer->cached = true;
	model_touch(m, l->buffer);
	model_drop_name(m, twin);
}

void model_open_twin(struct model *m, struct model_session *s, struct model_lease *l)
{
	int code = !l || l->session != s ? CODE_NO_LEASE
		   : !l->buffer->twin	 ? CODE_NOT_FOUND
					 : model_grant(m, s, l->buffer->twin, MODEL_READ);

	if (code != CODE_OK)
		model_refuse(s, code);
}

void model_end_twin(struct model *m, struct model_buffer *b)
{
	struct model_buffer *twin = b->twin;

	b->twin = NULL;
	if (!twin)
		return;
	twin->twin_of = NULL;
	model_maybe_free(m, twin);
}

/* ---- eviction ---- */

static int check_evictable(const struct model_buffer *b)
{
	int code = check_suspendable(b);

	if (code != CODE_OK)
		return code;
	return b->state != MODEL_SEALED ? CODE_STATE
	       : !b->twin		? CODE_NO_COPY
	       : model_in_use(b)	? CODE_STATE
					: CODE_OK;
}

static void evict(struct model *m, struct model_buffer *b)
{
	m->evictions++;
	model_release(m, b);
	b->hollow = true;
	b->memory = 0;
}

void model_evict(struct model *m, struct model_session *s, const char *name, bool other)
{
	struct model_buffer *b = NULL;
	char key[MODEL_NAME_MAX];
	int code = model_key(s->process, name, key);

	if (code == CODE_OK)
		code = model_look(m, s->process, key, &b);
	if (code == CODE_OK && other)
		code = CODE_NOT_FOUND;
	if (code == CODE_OK && !model_owns(s->process, b))
		code = CODE_ACCESS;
	if (code == CODE_OK && !b->hollow)
		code = check_evictable(b);
	s->reply.what = MODEL_DONE;
	if (code != CODE_OK) {
		model_refuse(s, code);
	} else if (!b->hollow) {
		evict(m, b);
		model_settle(m);
	}
}

void model_restore(struct model *m, struct model_session *s, struct model_lease *fresh,
		   struct model_lease *l)
{
	struct model_buffer *from = fresh->buffer, *b = l->buffer;
	int code = check_pair(from, b);

	if (code == CODE_OK && !b->hollow)
		code = CODE_EXISTS;
	if (code == CODE_OK && (from->state != MODEL_FILLING || from->pool != b->pool))
		code = CODE_STATE;
	if (code != CODE_OK) {
		model_refuse(s, code);
		return;
	}
	b->allocated = from->allocated;
	b->memory = from->memory;
	b->tag = from->tag;
	b->inherited = b->hollow = false;
	from->allocated = from->memory = 0;
	from->hollow = true;
	if (l->away) {
		l->away = false;
		model_touch(m, b);
	}
	model_drop_name(m, from);
	s->reply.what = MODEL_PUBLISHED;
	s->reply.buffer = from;
	if (b->name[0])
		model_wake(m, b->name);
}

void model_keep(struct model *m, struct model_session *s, const char *name, uint64_t keep_ms,
		int priority)
{
	struct model_buffer *b = NULL;
	char key[MODEL_NAME_MAX];
	int code = model_key(s->process, name, key);

	if (code == CODE_OK)
		code = model_look(m, s->process, key, &b);
	if (code == CODE_OK && !model_owns(s->process, b))
		code = CODE_ACCESS;
	if (code == CODE_OK && !b->twin)
		code = CODE_NO_COPY;
	s->reply.what = MODEL_DONE;
	if (code != CODE_OK) {
		model_refuse(s, code);
		return;
	}
	b->keep_ms = keep_ms;
	b->priority = priority;
}

/* ---- room ---- */

static bool may_go(const struct model_buffer *b, uid_t uid, const struct model_pool *pool)
{
	return b->cached && b->pool == pool && b->uid == uid && !b->hollow && b->twin &&
	       b->keep_ms == 0;
}

static uint64_t over(uint64_t wanted, uint64_t most)
{
	return wanted > most ? wanted - most : 0;
}

static uint64_t lacking(const struct model *m, const struct model_process *p,
			const struct model_pool *pool, uint64_t bytes)
{
	uint64_t rounded, in_pool, in_share = 0;

	if (pool->fails || bytes > pool->size)
		return 0;
	rounded = model_round(pool, bytes);
	if (rounded > pool->size)
		return 0;
	in_pool = over(model_used(m, pool) + rounded, pool->size);
	if (!p->admin)
		in_share = over(model_bytes_in(m, p->uid, pool) + rounded,
				pool->size * MODEL_POOL_SHARE / 100);
	return in_pool > in_share ? in_pool : in_share;
}

bool model_room_is_vague(const struct model *m, const struct model_process *p,
			 const struct model_pool *pool, uint64_t bytes)
{
	const struct model_buffer *a, *b;

	if (lacking(m, p, pool, bytes) == 0)
		return false;
	/* Who waits for space may get it first. */
	if (!list_empty(&pool->waiting))
		return true;
	list_foreach (a, &m->buffers, link)
		list_foreach (b, &m->buffers, link)
			if (a != b && a->used == b->used && may_go(a, p->uid, pool) &&
			    may_go(b, p->uid, pool))
				return true;
	return false;
}

uint64_t model_crowding_bytes(const struct model *m, const struct model_process *p,
			      const struct model_pool *pool)
{
	uint64_t used = model_used(m, pool), room = over(pool->size, used),
		 share = over(pool->size * MODEL_POOL_SHARE / 100, model_bytes_in(m, p->uid, pool));
	const struct model_buffer *b;
	unsigned found = 0;

	list_foreach (b, &m->buffers, link)
		found += may_go(b, p->uid, pool) && !model_in_use(b);
	if (found < 2 || pool->fails)
		return 0;
	return (p->admin || room < share ? room : share) + 1;
}

/* The longest unused that no process has, or that all have suspended. */
static struct model_buffer *next_to_go(const struct model *m, uid_t uid,
				       const struct model_pool *pool, bool open)
{
	struct model_buffer *b, *found = NULL;

	list_foreach (b, &m->buffers, link)
		if (may_go(b, uid, pool) && !model_in_use(b) && list_empty(&b->leases) == !open &&
		    (!found || b->used < found->used))
			found = b;
	return found;
}

static struct model_buffer *next_to_ask(const struct model *m, uid_t uid,
					const struct model_pool *pool)
{
	struct model_buffer *b, *found = NULL;

	list_foreach (b, &m->buffers, link)
		if (may_go(b, uid, pool) && model_in_use(b) && !b->wanted &&
		    (!found || b->priority < found->priority ||
		     (b->priority == found->priority && b->used < found->used)))
			found = b;
	return found;
}

static bool ask(struct model *m, uid_t uid, const struct model_pool *pool, uint64_t bytes)
{
	struct model_buffer *b;
	uint64_t asked = 0, all = 0;

	list_foreach (b, &m->buffers, link) {
		asked += b->wanted && b->pool == pool ? b->allocated : 0;
		all += may_go(b, uid, pool) && model_in_use(b) && !b->wanted ? b->allocated : 0;
	}
	if (asked + all < bytes)
		return false;
	while (asked < bytes && (b = next_to_ask(m, uid, pool))) {
		asked += b->allocated;
		b->wanted = true;
		m->asked++;
	}
	return asked >= bytes;
}

bool model_make_room(struct model *m, const struct model_process *p, struct model_pool *pool,
		     uint64_t bytes, bool waits)
{
	uint64_t lack = lacking(m, p, pool, bytes);
	struct model_buffer *b;

	for (int open = 0; open < 2; open++)
		while (lack > 0 && (b = next_to_go(m, p->uid, pool, open))) {
			lack = over(lack, b->allocated);
			evict(m, b);
		}
	return lack > 0 && waits && ask(m, p->uid, pool, lack);
}

/* Whether creates of the user wait for more than the pool has. */
static bool is_short_of(const struct model *m, const struct model_pool *pool, uid_t uid)
{
	uint64_t wanted = model_used(m, pool), waiting = 0;
	const struct model_buffer *b;

	list_foreach (b, &m->buffers, link)
		if (b->pool == pool && b->uid == uid && !b->allocated && !b->hollow)
			waiting += model_round(pool, b->bytes);
	return waiting > 0 && wanted + waiting > pool->size;
}

void model_yield(struct model *m, struct model_buffer *b)
{
	if (model_in_use(b) || (!b->wanted && (b->keep_ms > 0 || !is_short_of(m, b->pool, b->uid))))
		return;
	b->wanted = false;
	if (check_evictable(b) == CODE_OK && !b->hollow)
		evict(m, b);
}

static bool is_asking(const struct model_pool *pool)
{
	const struct model_session *s;

	list_foreach (s, &pool->waiting, wait_link)
		if (s->asks)
			return true;
	return false;
}

void model_want_less(struct model *m)
{
	struct model_buffer *b;

	list_foreach (b, &m->buffers, link)
		b->wanted = b->wanted && is_asking(b->pool);
}
