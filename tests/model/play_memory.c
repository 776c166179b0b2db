/* SPDX-License-Identifier: MIT
 *
 * The operations of memory that comes and goes. A copy of a sealed buffer is created first, and
 * handed over by a later operation, as its twin or in the place of its memory: much may happen in
 * between, and what is handed over may be any other buffer.
 */
#include "tests/model/play.h"

#include "proto/base/own.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool play_is_about_memory(const struct play *p)
{
	return p->theme >> 8 & 1;
}

/* One that keeps a buffer with a twin from being evicted, if there is one. */
static struct model_lease *pick_user(struct play *p, const struct op *op, struct connection **ret)
{
	struct model_session *s;
	struct model_lease *l, *picked = play_pick_lease(p, op, false, ret);
	unsigned found = 0;

	list_foreach (s, &p->model.sessions, link)
		list_foreach (l, &s->leases, session_link)
			if (s->connection >= 0 && s->waits == MODEL_IDLE && l->buffer->twin &&
			    !l->away && op->which % 4 && op->which / 4 % ++found == 0) {
				picked = l;
				*ret = &p->connections[s->connection];
			}
	return picked;
}

void play_suspend(struct play *p, const struct op *op)
{
	struct connection *conn;
	struct model_lease *l = pick_user(p, op, &conn);
	uint64_t id = play_lease_id(l);
	/* Mostly the other one than what it is now. */
	bool away = l && op->how % 8 ? !l->away : op->how >> 3 & 1;

	if (!conn || (!l && op->how % 16))
		return;
	play_tell(p, "%u %s \"%s\", lease %" PRIu64, play_number(p, conn),
		  away ? "suspends" : "resumes", l ? play_name_of(l->buffer) : "?", id);
	model_set_away(&p->model, conn->session, l, away);
	outcome->counts.suspends += away && conn->session->reply.what == MODEL_DONE;
	play_send(conn, away ? REQUEST(SUSPEND, Suspend, suspend, SET(lease, id))
			     : REQUEST(RESUME, Resume, resume, SET(lease, id)));
}

/* ---- copies ---- */

static bool wants_copy(const struct model_buffer *b)
{
	return b->state == MODEL_SEALED && (b->hollow || !b->twin);
}

/* A lease on a sealed buffer without a twin, or on an evicted one. */
static struct model_lease *pick_original(struct play *p, uint32_t n, struct connection **ret)
{
	struct model_lease *all[64], *l;
	struct model_session *s;
	unsigned found = 0;

	list_foreach (s, &p->model.sessions, link)
		list_foreach (l, &s->leases, session_link)
			if (s->connection >= 0 && s->waits == MODEL_IDLE && wants_copy(l->buffer) &&
			    found < array_size(all))
				all[found++] = l;
	if (found == 0)
		return NULL;
	l = all[n % found];
	*ret = &p->connections[l->session->connection];
	return l;
}

static const char *pool_for_copy(struct play *p, const struct model_buffer *b, uint32_t n)
{
	struct model_pool *host = model_pool_by_name(&p->model, "host");

	if (b->hollow || n % 8 == 0)
		return b->pool->name;
	return b->bytes > host->size || n % 8 == 1 ? "pinned" : "host";
}

static void hand_over(struct play *p, struct model_lease *fresh, struct model_lease *l,
		      bool restores)
{
	struct connection *conn = &p->connections[fresh->session->connection];

	play_tell(p, "%u hands \"%s\" over to %s \"%s\"", play_number(p, conn),
		  play_name_of(fresh->buffer), restores ? "restore" : "be the twin of",
		  play_name_of(l->buffer));
	if (restores)
		model_restore(&p->model, conn->session, fresh, l);
	else
		model_hand_over_twin(&p->model, conn->session, fresh, l);
	if (conn->session->reply.what == MODEL_PUBLISHED)
		++*(restores ? &outcome->counts.restores : &outcome->counts.twins);
	play_send(conn,
		  REQUEST(PUBLISH, Publish, publish, SET(lease, fresh->id),
			  SET(state, GPUSHM__PROTO__STATE__STATE_SEALED), .has_restores = restores,
			  .restores = l->id, .has_twin_of = !restores, .twin_of = l->id));
}

void play_copy(struct play *p, const struct op *op)
{
	static const char *const names[] = { "~/copy", "copy", "~/other copy" };
	struct connection *conn;
	struct model_lease *l = pick_original(p, op->which, &conn);
	const struct model_buffer *b = l ? l->buffer : NULL;
	struct model_lease *fresh;
	struct model_spec spec = { .name = names[op->how % 3], .mode = 0600, .transient = true };
	struct model_pool *pool;

	if (!b || b->pool->inherited || model_pool_by_name(&p->model, b->pool->name) != b->pool)
		return;
	spec.bytes = b->bytes;
	spec.pool = pool_for_copy(p, b, op->how >> 4);
	pool = model_pool_by_name(&p->model, spec.pool);
	if (model_room_is_vague(&p->model, conn->session->process, pool, spec.bytes))
		return;
	play_tell(p, "%u copies \"%s\" to \"%s\" in %s", play_number(p, conn), play_name_of(b),
		  spec.name, spec.pool);
	p->copied = b->uid == conn->session->process->uid ? b->tag : 0;
	model_create(&p->model, conn->session, &spec);
	play_send(conn,
		  REQUEST(CREATE, Create, create, BYTES(name, spec.name), BYTES(pool, spec.pool),
			  SET(size_bytes, spec.bytes), SET(mode, spec.mode), SET(transient, true)));
	fresh = conn->session->reply.lease;
	play_collect(p);
	p->copied = 0;
	if (fresh && (op->how >> 10) % 4)
		hand_over(p, fresh, l, b->hollow);
}

static bool fit(const struct model_buffer *fresh, const struct model_buffer *b)
{
	return fresh != b && fresh->bytes == b->bytes && fresh->uid == b->uid &&
	       fresh->state == MODEL_FILLING && !fresh->hollow && wants_copy(b) &&
	       (!b->hollow || fresh->pool == b->pool);
}

/* Two leases of a session: mostly such that the first one's buffer can be for the second one's. */
static bool pick_pair(struct play *p, const struct op *op, struct model_lease *ret[2])
{
	struct model_session *s;
	struct model_lease *a, *b;
	unsigned found = 0;
	bool any = op->how % 8 == 0;

	list_foreach (s, &p->model.sessions, link) {
		if (s->connection < 0 || s->waits != MODEL_IDLE)
			continue;
		list_foreach (a, &s->leases, session_link)
			list_foreach (b, &s->leases, session_link)
				if ((any || fit(a->buffer, b->buffer)) &&
				    op->which % ++found == 0) {
					ret[0] = a;
					ret[1] = b;
				}
	}
	return found > 0;
}

void play_hand_over(struct play *p, const struct op *op)
{
	struct model_lease *pair[2];

	if (pick_pair(p, op, pair))
		hand_over(p, pair[0], pair[1],
			  pair[1]->buffer->hollow != ((op->how >> 3) % 16 == 0));
}

void play_open_twin(struct play *p, const struct op *op)
{
	struct connection *conn;
	struct model_lease *l = play_pick_lease(p, op, false, &conn);

	if (!conn || (!l && op->how % 16))
		return;
	play_tell(p, "%u opens the twin of \"%s\"", play_number(p, conn),
		  l ? play_name_of(l->buffer) : "?");
	model_open_twin(&p->model, conn->session, l);
	play_send(conn, REQUEST(OPEN, Open, open, SET(twin_of, play_lease_id(l))));
}

/* ---- who goes ---- */

/* Mostly the name of a buffer that has a twin. */
static void pick_cached(struct play *p, const struct op *op, char ret[MODEL_NAME_MAX])
{
	struct model_buffer *b;
	unsigned found = 0;

	play_pick_name(p, op->which, ret);
	list_foreach (b, &p->model.buffers, link)
		if (b->cached && b->name[0] && op->how % 8 && op->which % ++found == 0)
			snprintf(ret, MODEL_NAME_MAX, "%s", b->name);
}

/* ---- who goes ---- */

static struct model_lease *create(struct play *p, struct connection *conn, const char *name,
				  const char *pool, uint64_t bytes)
{
	struct model_spec spec = { .name = name, .pool = pool, .mode = 0600, .bytes = bytes };
	struct model_pool *in = model_pool_by_name(&p->model, pool);
	struct model_lease *fresh;

	if (!in || model_room_is_vague(&p->model, conn->session->process, in, bytes))
		return NULL;
	play_tell(p, "%u creates \"%s\" in %s: %" PRIu64 " bytes", play_number(p, conn), name, pool,
		  bytes);
	model_create(&p->model, conn->session, &spec);
	play_send(conn, REQUEST(CREATE, Create, create, BYTES(name, name), BYTES(pool, pool),
				SET(size_bytes, bytes), SET(mode, 0600)));
	fresh = conn->session->reply.lease;
	play_collect(p);
	return fresh;
}

/* Makes a buffer with a twin, which it leaves suspended. */
static void make_cached(struct play *p, struct connection *conn, const char *name)
{
	struct model_lease *l = create(p, conn, name, "gpu0", 4096), *twin;
	uint64_t id = play_lease_id(l);

	if (!l)
		return;
	model_publish(&p->model, conn->session, l, MODEL_SEALED, NULL, false);
	play_send(conn, REQUEST(PUBLISH, Publish, publish, SET(lease, id),
				SET(state, GPUSHM__PROTO__STATE__STATE_SEALED)));
	play_collect(p);
	p->copied = l->buffer->tag;
	twin = create(p, conn, "~/twin", "host", 4096);
	p->copied = 0;
	if (twin) {
		hand_over(p, twin, l, false);
		play_collect(p);
	}
	model_set_away(&p->model, conn->session, l, true);
	play_send(conn, REQUEST(SUSPEND, Suspend, suspend, SET(lease, id)));
}

/* A create for which the longest unused one of several buffers goes; or one more such buffer. */
void play_crowd(struct play *p, const struct op *op)
{
	static const char *const names[] = { "~/c0", "~/c1", "~/c2", "~/c3" };
	struct connection *conn = play_pick_connection(p, op->who);
	struct model_pool *pool = model_pool_by_name(&p->model, "gpu0");
	uint64_t id, bytes = conn && pool
				     ? model_crowding_bytes(&p->model, conn->session->process, pool)
				     : 0;
	struct model_lease *l;

	if (conn && !bytes)
		make_cached(p, conn, names[op->which % array_size(names)]);
	if (!bytes)
		return;
	l = create(p, conn, "~/crowd", "gpu0", bytes);
	if (!l)
		return;
	outcome->counts.crowds++;
	id = play_lease_id(l);
	model_close(&p->model, conn->session, l);
	play_send(conn, REQUEST(CLOSE, Close, close, SET(lease, id)));
}

void play_evict(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	char name[MODEL_NAME_MAX];
	bool other;
	uint64_t id;

	if (!conn)
		return;
	pick_cached(p, op, name);
	id = play_id_for(p, conn->session, name, op->how >> 8, &other);
	play_tell(p, "%u evicts \"%s\"%s", play_number(p, conn), name,
		  other ? " if it is another one" : "");
	model_evict(&p->model, conn->session, name, other);
	play_send(conn, REQUEST(EVICT, Evict, evict, BYTES(name, name), SET(buffer, id)));
}

void play_keep(struct play *p, const struct op *op)
{
	static const uint64_t times[] = { 0, 3600000, UINT64_MAX, 0 };
	struct connection *conn = play_pick_connection(p, op->who);
	uint64_t keep_ms = times[(op->how >> 8) % array_size(times)];
	int priority = (int)(op->how >> 10) % 3 - 1;
	char name[MODEL_NAME_MAX];

	if (!conn)
		return;
	pick_cached(p, op, name);
	play_tell(p, "%u keeps \"%s\" for %" PRIu64 " ms, priority %d", play_number(p, conn), name,
		  keep_ms, priority);
	model_keep(&p->model, conn->session, name, keep_ms, priority);
	play_send(conn, REQUEST(KEEP, Keep, keep, BYTES(name, name), SET(keep_ms, keep_ms),
				SET(priority, priority)));
}
