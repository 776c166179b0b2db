/* SPDX-License-Identifier: MIT
 *
 * The other requests: create, close, unlink, reclaim; and what a daemon's death leaves.
 */
#include "tests/model/model.h"

#include <stdio.h>
#include <string.h>

static int check_create(struct model *m, struct model_session *s, const struct model_spec *spec,
			char key[MODEL_NAME_MAX])
{
	const struct model_process *p = s->process;
	const struct model_pool *pool = model_pool_by_name(m, spec->pool);
	int code = model_key(p, spec->name, key);

	if (code != CODE_OK)
		return code;
	if (spec->bytes == 0 || spec->mode & ~0666u)
		return CODE_BAD_REQUEST;
	if (spec->has_gid && !p->admin && spec->gid != p->gid)
		return CODE_ACCESS;
	if (!pool)
		return CODE_NOT_FOUND;
	if (!model_may_use(p, pool))
		return CODE_ACCESS;
	if (model_buffer_by_key(m, key))
		return CODE_EXISTS;
	s->asks = model_make_room(m, p, model_pool_by_name(m, spec->pool), spec->bytes,
				  spec->patience == MODEL_FOR_EVER);
	if (model_buffers(m, p->uid) >= MODEL_BUFFERS_MAX ||
	    model_bytes(m, p->uid) + spec->bytes > MODEL_BYTES_MAX)
		return CODE_LIMIT;
	if (!p->admin && !pool->fails &&
	    model_bytes_in(m, p->uid, pool) + model_round(pool, spec->bytes) >
		    pool->size * MODEL_POOL_SHARE / 100)
		return CODE_LIMIT;
	return CODE_OK;
}

static struct model_buffer *make(struct model *m, const struct model_session *s,
				 const struct model_spec *spec, const char *key)
{
	struct model_buffer *b = calloc(1, sizeof(*b));

	snprintf(b->name, sizeof(b->name), "%s", key);
	b->pool = model_pool_by_name(m, spec->pool);
	b->state = MODEL_FILLING;
	b->uid = s->process->uid;
	b->gid = spec->has_gid ? spec->gid : s->process->gid;
	b->mode = spec->mode;
	b->transient = spec->transient;
	b->bytes = spec->bytes;
	b->has_table = spec->attr;
	list_init(&b->leases);
	list_insert(&m->buffers, &b->link);
	return b;
}

void model_create(struct model *m, struct model_session *s, const struct model_spec *spec)
{
	char key[MODEL_NAME_MAX];
	struct model_buffer *b;
	int code = check_create(m, s, spec, key);

	if (code != CODE_OK) {
		model_want_less(m);
		model_refuse(s, code);
		return;
	}
	b = make(m, s, spec, key);
	code = model_allocate(m, b);
	if (code == CODE_POOL_FULL && spec->patience == MODEL_FOR_EVER) {
		s->waits = MODEL_CREATES;
		s->creating = b;
		list_insert(&b->pool->waiting, &s->wait_link);
		return;
	}
	model_want_less(m);
	if (code == CODE_OK)
		code = model_grant(m, s, b, MODEL_WRITE);
	if (code != CODE_OK) {
		model_refuse(s, code);
		model_drop_name(m, b);
		model_maybe_free(m, b);
	}
	model_settle(m);
}

void model_describe(struct model *m, struct model_session *s, struct model_lease *l, bool fits)
{
	if (!l || l->session != s) {
		model_refuse(s, CODE_NO_LEASE);
	} else if (l->buffer->state != MODEL_FILLING) {
		model_refuse(s, CODE_STATE);
	} else if (!fits) {
		model_refuse(s, CODE_LAYOUT);
	} else {
		l->buffer->arrays++;
		l->buffer->has_table = true;
		s->reply.what = MODEL_DESCRIBED;
		s->reply.buffer = l->buffer;
	}
}

void model_close(struct model *m, struct model_session *s, struct model_lease *l)
{
	if (!l || l->session != s) {
		model_refuse(s, CODE_NO_LEASE);
		return;
	}
	s->reply.what = MODEL_DONE;
	model_end(m, l);
	model_settle(m);
}

void model_unlink(struct model *m, struct model_session *s, const char *name, bool other)
{
	char key[MODEL_NAME_MAX];
	int code = model_key(s->process, name, key);
	struct model_buffer *b = code == CODE_OK ? model_buffer_by_key(m, key) : NULL;

	if (code == CODE_OK && (!b || other))
		code = CODE_NOT_FOUND;
	if (code == CODE_OK && !model_owns(s->process, b))
		code = CODE_ACCESS;
	s->reply.what = MODEL_DONE;
	if (code != CODE_OK) {
		model_refuse(s, code);
		return;
	}
	model_drop_name(m, b);
	model_maybe_free(m, b);
	model_settle(m);
}

/* The daemon trusts only that it is the same process. Leases that are not named end with `last`,
 * and were not written to. */
void model_reclaim(struct model *m, struct model_session *s, uint64_t former,
		   struct model_lease *const *leases, size_t n, bool last)
{
	struct model_session *old;
	struct model_lease *l;

	s->reply.what = MODEL_RECLAIMED;
	for (size_t i = 0; i < n; i++) {
		l = leases[i];
		if (!l || l->session->connected || l->session->process != s->process) {
			s->reply.lost++;
			continue;
		}
		list_drop(&l->session_link);
		list_insert(&s->leases, &l->session_link);
		l->session = s;
	}
	list_foreach (old, &m->sessions, link) {
		if (!last || old->connected || old->process != s->process ||
		    (old->number != former && !list_empty(&old->leases)))
			continue;
		list_foreach (l, &old->leases, session_link)
			model_end(m, l);
		model_forget(old);
	}
	model_settle(m);
}

/* ---- the daemon's death ---- */

/* Drops an unpublished buffer and its charge. */
static void drop_filling(struct model *m, struct model_buffer *b)
{
	struct model_lease *l;

	list_foreach (l, &b->leases, buffer_link) {
		list_drop(&l->buffer_link);
		list_drop(&l->session_link);
		free(l);
	}
	list_drop(&b->link);
	free(b);
}

/* Two dead writers of a clean buffer: it is undefined which one the successor finds first. */
static void note_dead_writers(struct model_buffer *b)
{
	const struct model_lease *l;
	pid_t first = 0;

	list_foreach (l, &b->leases, buffer_link) {
		if (l->access != MODEL_WRITE || l->session->process->alive || l->away)
			continue;
		if (first && first != l->session->process->pid && !b->dirty)
			b->two_died = true;
		first = l->session->process->pid;
	}
}

static void restart_session(struct model *m, struct model_session *s)
{
	struct model_lease *l;

	s->connected = false;
	if (!s->process->alive)
		list_foreach (l, &s->leases, session_link)
			model_lose(m, l);
	if (list_empty(&s->leases))
		model_forget(s);
}

static void restart_pool(struct model *m, struct model_pool *pool)
{
	model_empty(pool);
	pool->frees = 0;
	pool->poked = pool->vague = false;
	if (pool->kind == MODEL_MEMPOOL && !pool->fails)
		pool->inherited = true;
}

void model_restart(struct model *m)
{
	struct model_session *s;
	struct model_buffer *b;
	struct model_pool *pool;

	list_foreach (s, &m->sessions, link) {
		list_drop(&s->wait_link);
		s->waits = MODEL_IDLE;
		s->creating = NULL;
	}
	list_foreach (pool, &m->pools, link)
		restart_pool(m, pool);
	list_foreach (b, &m->buffers, link)
		if (b->state == MODEL_FILLING)
			drop_filling(m, b);
	list_foreach (b, &m->buffers, link) {
		note_dead_writers(b);
		b->inherited = true;
		b->wanted = false;
	}
	list_foreach (s, &m->sessions, link)
		restart_session(m, s);
	/* It is undefined in which order the successor frees buffers without holders, and in which
	 * it takes over those that have a twin. */
	list_foreach (b, &m->buffers, link)
		b->used = 0;
	list_foreach (pool, &m->pools, link) {
		pool->vague = pool->vague || pool->frees > 0;
		pool->poked = false;
	}
	list_foreach (pool, &m->pools, link)
		if (pool->inherited && model_blocks(m, pool) == 0) {
			list_drop(&pool->link);
			free(pool);
		}
}
