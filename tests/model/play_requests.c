/* SPDX-License-Identifier: MIT
 *
 * The operations: each chooses its objects by its numbers, tells the model, and sends the request
 * to the daemon.
 */
#include "tests/model/play.h"

#include "proto/base/own.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct model_buffer *find_dirty(struct play *p)
{
	struct model_buffer *b;

	list_foreach (b, &p->model.buffers, link)
		if (b->name[0] && b->dirty)
			return b;
	return NULL;
}

/* Mostly the key of an existing buffer; otherwise one of a few names, so that they collide.
 * "~65531/p" is the private name of the first user, whoever uses it. */
void play_pick_name(struct play *p, uint32_t n, char ret[MODEL_NAME_MAX])
{
	static const char *const names[] = { "a", "b", "c", "d/e", "~/p", "~65531/p", "a//b" };
	struct model_buffer *b;
	unsigned there = 0, i = 0;

	list_foreach (b, &p->model.buffers, link)
		there += b->name[0] != '\0';
	snprintf(ret, MODEL_NAME_MAX, "%s", names[n >> 8 & 15 ? n % 6 : n % array_size(names)]);
	if (there == 0 || n % 3 == 0)
		return;
	list_foreach (b, &p->model.buffers, link)
		if (b->name[0] && i++ == n / 3 % there)
			snprintf(ret, MODEL_NAME_MAX, "%s", b->name);
}

/* For new buffers, more of the names are free. */
static const char *new_name(uint32_t n)
{
	static const char *const names[] = { "a", "b", "c", "d/e", "~/p", "e", "~65531/p", "f" };

	return n % 61 == 60 ? "../a" : names[n % array_size(names)];
}

/* One that is connected and waits for nothing, or NULL. */
struct connection *play_pick_connection(struct play *p, uint32_t who)
{
	struct connection *ready[CONNECTIONS];
	unsigned n = 0;

	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (p->connections[i].session && p->connections[i].session->waits == MODEL_IDLE)
			ready[n++] = &p->connections[i];
	return n ? ready[who % n] : NULL;
}

struct model_lease *play_pick_lease(struct play *p, const struct op *op, bool filling,
				    struct connection **ret)
{
	struct model_lease *all[256], *l;
	struct model_session *s;
	unsigned n = 0;

	*ret = play_pick_connection(p, op->who);
	filling = filling && op->which % 4;
	list_foreach (s, &p->model.sessions, link)
		list_foreach (l, &s->leases, session_link)
			if (s->connection >= 0 && s->waits == MODEL_IDLE && n < array_size(all) &&
			    (!filling || l->buffer->state == MODEL_FILLING))
				all[n++] = l;
	if (n == 0)
		return NULL;
	l = all[op->which / 4 % n];
	if (op->who % 16)
		*ret = &p->connections[l->session->connection];
	return l;
}

uint64_t play_lease_id(const struct model_lease *l)
{
	return l ? l->id : 12345;
}

void play_send(struct connection *conn, const Gpushm__Proto__Request *q)
{
	int e = raw_request(&conn->raw, q);

	if (e < 0)
		play_fail("a request can't be sent: %s", strerror(-e));
}

static enum model_patience patience_of(uint32_t n)
{
	return n % 8 == 0 ? MODEL_FOR_EVER : n % 8 == 1 ? MODEL_BRIEFLY : MODEL_AT_ONCE;
}

static uint64_t wait_ms(enum model_patience patience)
{
	return patience == MODEL_FOR_EVER ? UINT64_MAX : patience == MODEL_BRIEFLY;
}

unsigned play_number(const struct play *p, const struct connection *conn)
{
	return (unsigned)(conn - p->connections);
}

/* ---- buffers ---- */

static uint64_t size_of(const struct model_pool *pool, uint32_t n)
{
	uint64_t g = pool->granularity;
	const uint64_t sizes[] = { 1, g, g, 1, 2 * g, 3 * g, g + 1, n % 16 == 7 ? pool->size : g };

	if (n % 37 == 36)
		return n % 2 ? 0 : pool->size + 1;
	return pool->fails ? 1 : sizes[n % array_size(sizes)];
}

static const char *pool_name(struct play *p, uint32_t n)
{
	static const char *const names[] = { "host", "gpu0", "gpu0", "pinned", "mem" };
	/* Three of four in the same pool, so that it gets full. */
	const char *name = names[(n % 4 ? p->theme : n / 4) % array_size(names)];

	if (n % 41 == 40)
		return "none";
	return model_pool_by_name(&p->model, name)->fails && n % 16 ? "host" : name;
}

/* Two creates that wait in two pools may be served in any order, and may both need the last lease.
 */
static bool waits_already(struct play *p, uid_t uid)
{
	struct model_session *s;

	list_foreach (s, &p->model.sessions, link)
		if (s->waits == MODEL_CREATES && s->process->uid == uid)
			return true;
	return false;
}

void play_create(struct play *p, const struct op *op)
{
	static const unsigned modes[] = { 0600, 0666, 0660, 0644, 0606, 0066, 0666, 01666 };
	struct connection *conn = play_pick_connection(p, op->who);
	struct model_spec spec = { .name = new_name(op->which),
				   .pool = pool_name(p, op->which >> 8),
				   .mode = modes[op->how >> 4 & 7],
				   .has_gid = (op->how >> 7) % 8 == 0,
				   .gid = (op->how >> 10) % 2 ? 65530 : 65533,
				   .transient = (op->how >> 11) % 4 == 0,
				   .attr = (op->how >> 13) % 2,
				   .patience = patience_of(op->how) };
	struct model_pool *pool = model_pool_by_name(&p->model, spec.pool);
	Gpushm__Proto__Attr attr = MESSAGE(Attr, attr, BYTES(key, "k"), BYTES(value, "v")),
			    *attrs[] = { &attr };

	if (!conn ||
	    (spec.patience == MODEL_FOR_EVER && waits_already(p, conn->session->process->uid)))
		return;
	if (spec.mode & ~0666u && op->how >> 20 & 3)
		spec.mode = 0666;
	spec.bytes = pool ? size_of(pool, op->how >> 14) : 1;
	if (pool && model_room_is_vague(&p->model, conn->session->process, pool, spec.bytes))
		return;
	play_tell(p, "%u creates \"%s\" in %s: %" PRIu64 " bytes, mode %04o%s%s%s%s",
		  play_number(p, conn), spec.name, spec.pool, spec.bytes, spec.mode,
		  spec.transient ? ", transient" : "", spec.attr ? ", with an attribute" : "",
		  spec.has_gid ? ", with a group" : "",
		  spec.patience == MODEL_FOR_EVER ? ", and waits" : "");
	model_create(&p->model, conn->session, &spec);
	if (conn->session->creating)
		conn->session->creating->above = p->last_buffer;
	play_send(conn, REQUEST(CREATE, Create, create, BYTES(name, spec.name),
				BYTES(pool, spec.pool), SET(size_bytes, spec.bytes),
				SET(mode, spec.mode), .has_gid = spec.has_gid, .gid = spec.gid,
				SET(transient, spec.transient), .n_attrs = spec.attr,
				.attrs = attrs, SET(wait_ms, wait_ms(spec.patience))));
}

void play_describe(struct play *p, const struct op *op)
{
	struct connection *conn;
	struct model_lease *l = play_pick_lease(p, op, true, &conn);
	bool fits = op->how % 4 != 0;
	uint64_t shape[] = { 1 };
	Gpushm__Proto__Dtype dtype =
		MESSAGE(Dtype, dtype, SET(code, 1), SET(bits, 8), SET(lanes, 1));
	char name[16];
	Gpushm__Proto__Array array = MESSAGE(Array, array, .dtype = &dtype, .n_shape = 1,
					     .shape = shape, SET(offset, fits ? 0 : 1u << 30));
	Gpushm__Proto__Array *arrays[] = { &array };

	if (!conn || (!l && op->how % 16))
		return;
	snprintf(name, sizeof(name), "x%u", l ? l->buffer->arrays : 0);
	array.has_name = 1;
	array.name = (ProtobufCBinaryData){ strlen(name), (uint8_t *)name };
	play_tell(p, "%u describes an array%s, by lease %" PRIu64, play_number(p, conn),
		  fits ? "" : " that does not fit", play_lease_id(l));
	model_describe(&p->model, conn->session, l, fits);
	play_send(conn, REQUEST(DESCRIBE, Describe, describe, SET(lease, play_lease_id(l)),
				.n_arrays = 1, .arrays = arrays));
}

/* Replacing a buffer may free memory, and wakes those who wait for its name: a create that waits
 * for space and an open may both need the last lease, and it is undefined which one gets it. */
static bool race_for_leases(struct play *p)
{
	struct model_session *s;

	list_foreach (s, &p->model.sessions, link)
		if (s->waits == MODEL_CREATES)
			return true;
	return false;
}

void play_publish(struct play *p, const struct op *op)
{
	struct connection *conn;
	struct model_lease *l = play_pick_lease(p, op, true, &conn);
	bool sealed = play_is_about_memory(p) ? op->how % 4 > 0 : op->how % 4 == 0;
	enum model_state state = sealed ? MODEL_SEALED : MODEL_SHARED;
	bool named = (op->how >> 4) % 4 == 0;
	bool replace = named && (op->how >> 6) % 2 && !race_for_leases(p);
	char name[MODEL_NAME_MAX] = "";

	if (!conn || (!l && op->how % 16))
		return;
	if (named)
		play_pick_name(p, op->how >> 8, name);
	play_tell(p, "%u publishes \"%s\" %s%s%s%s", play_number(p, conn),
		  l ? l->buffer->name : "?", state == MODEL_SEALED ? "sealed" : "shared",
		  named ? " as " : "", name, replace ? ", which it replaces" : "");
	model_publish(&p->model, conn->session, l, state, named ? name : NULL, replace);
	play_send(conn, REQUEST(PUBLISH, Publish, publish, SET(lease, play_lease_id(l)),
				SET(state, (Gpushm__Proto__State)state), .has_name = named,
				.name = { strlen(name), (uint8_t *)name }, SET(replace, replace)));
}

void play_open(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	char name[MODEL_NAME_MAX];
	enum model_access access = op->how >> 4 & 1 ? MODEL_WRITE : MODEL_READ;
	bool refuses = (op->how >> 5) % 2, while_filling = (op->how >> 6) % 4 == 0;
	bool away = (op->how >> 8) % 4 == 0;
	enum model_patience patience = patience_of(op->how);
	struct model_buffer *dirty = find_dirty(p);

	if (!conn)
		return;
	play_pick_name(p, op->which, name);
	/* Dirty buffers are rare: if one exists, half of the opens use it, and half of those wait.
	 */
	if (dirty && op->who >> 8 & 1) {
		snprintf(name, sizeof(name), "%s", dirty->name);
		patience = refuses ? MODEL_FOR_EVER : patience;
	}
	play_tell(p, "%u opens \"%s\" to %s%s%s%s%s", play_number(p, conn), name,
		  access == MODEL_WRITE ? "write" : "read", refuses ? ", if it is clean" : "",
		  patience == MODEL_FOR_EVER ? ", and waits" : "",
		  while_filling ? " while it is taken" : "", away ? ", away if need be" : "");
	model_open(&p->model, conn->session, name, access, refuses, while_filling, away, patience);
	play_send(conn, REQUEST(OPEN, Open, open, BYTES(name, name),
				SET(access, (Gpushm__Proto__Access)access),
				SET(refuse_dirty, refuses), SET(while_filling, while_filling),
				SET(away, away), SET(wait_ms, wait_ms(patience))));
}

void play_stat(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	char name[MODEL_NAME_MAX];
	enum model_patience patience = patience_of(op->how);

	if (!conn)
		return;
	play_pick_name(p, op->which, name);
	play_tell(p, "%u looks at \"%s\"%s", play_number(p, conn), name,
		  patience == MODEL_FOR_EVER ? ", and waits" : "");
	model_stat(&p->model, conn->session, name, patience);
	play_send(conn, REQUEST(STAT, Stat, stat, BYTES(name, name), SET(holders, op->how >> 8 & 1),
				SET(wait_ms, wait_ms(patience))));
}

void play_close(struct play *p, const struct op *op)
{
	struct connection *conn;
	struct model_lease *l = play_pick_lease(p, op, false, &conn);
	uint64_t id = play_lease_id(l);

	if (!conn || (!l && op->how % 16))
		return;
	play_tell(p, "%u closes \"%s\", lease %" PRIu64, play_number(p, conn),
		  l ? l->buffer->name : "?", id);
	model_close(&p->model, conn->session, l);
	play_send(conn, REQUEST(CLOSE, Close, close, SET(lease, id)));
}

/* Sometimes with an id: the right one, or another. */
uint64_t play_id_for(struct play *p, const struct model_session *s, const char *name, uint32_t how,
		     bool *ret_other)
{
	char key[MODEL_NAME_MAX];
	struct model_buffer *b = model_key(s->process, name, key) == CODE_OK
					 ? model_buffer_by_key(&p->model, key)
					 : NULL;

	*ret_other = how % 8 == 0;
	return *ret_other ? 1 : how % 8 == 1 && b ? b->id : 0;
}

void play_unlink(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	char name[MODEL_NAME_MAX];
	bool other;
	uint64_t id;

	if (!conn)
		return;
	play_pick_name(p, op->which, name);
	id = play_id_for(p, conn->session, name, op->how, &other);
	play_tell(p, "%u unlinks \"%s\"%s", play_number(p, conn), name,
		  other ? " if it is another one" : "");
	model_unlink(&p->model, conn->session, name, other);
	play_send(conn, REQUEST(UNLINK, Unlink, unlink, BYTES(name, name), SET(buffer, id)));
}

void play_rename(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	char from[MODEL_NAME_MAX], to[MODEL_NAME_MAX];
	bool replace = op->how % 2 && !race_for_leases(p);

	if (!conn)
		return;
	play_pick_name(p, op->which, from);
	if (op->how >> 1 & 1)
		play_pick_name(p, op->how >> 2, to);
	else
		snprintf(to, sizeof(to), "%s", new_name(op->how >> 2));
	play_tell(p, "%u renames \"%s\" to \"%s\"%s", play_number(p, conn), from, to,
		  replace ? ", which it replaces" : "");
	model_rename(&p->model, conn->session, from, to, replace);
	play_send(conn, REQUEST(RENAME, Rename, rename, BYTES(name, from), BYTES(to, to),
				SET(replace, replace)));
}

void play_clean(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	struct model_buffer *dirty = find_dirty(p);
	char name[MODEL_NAME_MAX];
	bool other;
	uint64_t id;

	if (!conn)
		return;
	play_pick_name(p, op->which, name);
	if (dirty && op->who >> 8 & 3)
		snprintf(name, sizeof(name), "%s", dirty->name);
	id = play_id_for(p, conn->session, name, op->how, &other);
	play_tell(p, "%u says that \"%s\" is clean", play_number(p, conn), name);
	model_clean(&p->model, conn->session, name, other);
	play_send(conn, REQUEST(CLEAN, Clean, clean, BYTES(name, name), SET(buffer, id)));
}

void play_flush(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	const char *pool = op->how % 2 ? pool_name(p, op->which) : "";

	if (!conn)
		return;
	play_tell(p, "%u flushes \"%s\"", play_number(p, conn), pool);
	model_flush(&p->model, conn->session, pool);
	play_send(conn, REQUEST(FLUSH, Flush, flush, BYTES(pool, pool)));
}
