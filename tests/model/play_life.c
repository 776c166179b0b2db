/* SPDX-License-Identifier: MIT
 *
 * Events of connections, processes and the daemon, and reconnecting after them; and LIST, which
 * needs no buffer either.
 */
#include "tests/model/play.h"

#include "proto/base/own.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void check_hello(const struct raw *raw, const struct model_process *p)
{
	const Gpushm__Proto__HelloReply *h = raw->reply->hello;

	if (h->uid != p->uid || h->admin != p->admin || !h->kept)
		play_fail("HELLO: uid %u, admin %d, kept %d", h->uid, h->admin, h->kept);
}

void play_connect(struct play *p, const struct op *op)
{
	struct connection *conn = &p->connections[op->who % CONNECTIONS];
	struct model_process *process = p->processes[op->who % CONNECTIONS / 2];
	int code;

	if (conn->session)
		return;
	play_tell(p, "%u connects", op->who % CONNECTIONS);
	conn->raw = (struct raw){ .socket = actor_connect(&p->actors[op->who % CONNECTIONS / 2]) };
	code = model_connect(&p->model, process, &conn->session);
	raw_call(&conn->raw,
		 REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)));
	if (conn->raw.code != code)
		play_fail("HELLO got %s, not %s", code_name(conn->raw.code), code_name(code));
	outcome->counts.codes[code]++;
	if (code != CODE_OK) {
		raw_await_end(&conn->raw);
		play_release(conn);
		return;
	}
	check_hello(&conn->raw, process);
	conn->session->number = conn->raw.reply->hello->session;
	conn->session->connection = (int)(op->who % CONNECTIONS);
}

static void close_connection(struct play *p, struct connection *conn)
{
	play_tell(p, "the socket of %u closes", play_number(p, conn));
	conn->session->connection = -1;
	model_disconnect(&p->model, conn->session);
	play_release(conn);
}

void play_disconnect(struct play *p, const struct op *op)
{
	struct connection *conn = &p->connections[op->who % CONNECTIONS];

	if (conn->session)
		close_connection(p, conn);
}

static unsigned count_sessions(struct play *p, const struct model_process *process, bool connected)
{
	struct model_session *s;
	unsigned n = 0;

	list_foreach (s, &p->model.sessions, link)
		n += s->process == process && s->connected == connected;
	return n;
}

static bool somebody_waits_for_space(struct play *p)
{
	struct model_pool *pool;

	list_foreach (pool, &p->model.pools, link)
		if (!list_empty(&pool->waiting))
			return true;
	return false;
}

static void kill_actor(struct play *p, unsigned i)
{
	play_tell(p, "process of %u and %u dies", 2 * i, 2 * i + 1);
	actor_kill(&p->actors[i]);
	outcome->counts.deaths++;
}

/* An actor that may be writing, if there is one. */
static unsigned pick_writer(const struct play *p, unsigned otherwise)
{
	struct model_buffer *b;
	struct model_lease *l;

	list_foreach (b, &p->model.buffers, link)
		list_foreach (l, &b->leases, buffer_link)
			for (unsigned i = 0; i < ACTORS; i++)
				if (b->state == MODEL_SHARED && b->name[0] && !b->dirty &&
				    l->access == MODEL_WRITE &&
				    l->session->process == p->processes[i])
					return i;
	return otherwise;
}

/* Its sockets stay open, as when a forked child has them; mostly they close afterwards, one after
 * the other. */
void play_die(struct play *p, const struct op *op)
{
	unsigned i = op->which % 2 ? pick_writer(p, op->who % ACTORS) : op->who % ACTORS;
	struct model_process *process = p->processes[i];

	/* Two of its connections end in an unknown order, which a waiting client could notice. */
	if (count_sessions(p, process, false) > 1 && somebody_waits_for_space(p))
		return;
	kill_actor(p, i);
	model_die(&p->model, process);
	p->processes[i] = NULL;
	for (unsigned n = 0; n < CONNECTIONS && op->how % 4; n++) {
		if (!p->connections[n].session || p->connections[n].session->process != process)
			continue;
		play_collect(p);
		play_await(p);
		play_flush_vague(p);
		close_connection(p, &p->connections[n]);
	}
}

/* The daemon checks inherited memory with its driver before it allocates: once an allocation has
 * succeeded, this is done. Our user's limits may forbid the allocation; then it is unknown. */
static void await_verification(struct play *p)
{
	struct model_pool *pool = model_pool_by_name(&p->model, "gpu0");
	struct model_buffer *b;
	int code;

	if (pool->fails || model_room_is_vague(&p->model, p->self, pool, 1))
		return;
	model_make_room(&p->model, p->self, pool, 1, false);
	code = raw_call(&p->eye, REQUEST(CREATE, Create, create, BYTES(name, "audit"),
					 BYTES(pool, "gpu0"), SET(size_bytes, 1)));
	if (code == 0)
		play_look(p, REQUEST(CLOSE, Close, close, SET(lease, p->eye.reply->attach->lease)));
	play_look(p, REQUEST(FLUSH, Flush, flush, BYTES(pool, "gpu0")));
	model_empty(pool);
	list_foreach (b, &p->model.buffers, link)
		b->inherited = b->inherited && code != 0;
}

void play_crash(struct play *p, int signal, unsigned *dies)
{
	outcome->counts.restarts++;
	supervisor_end(&p->supervisor, signal);
	if (dies) {
		kill_actor(p, *dies);
		p->processes[*dies]->alive = false;
		p->processes[*dies] = NULL;
	}
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (p->connections[i].session) {
			p->connections[i].session->connection = -1;
			play_release(&p->connections[i]);
		}
	raw_close(&p->eye);
	model_restart(&p->model);
	supervisor_start(&p->supervisor);
	play_greet(p);
	play_learn_pools(p);
	await_verification(p);
}

/* Sometimes a process dies while no daemon runs. */
void play_restart(struct play *p, const struct op *op)
{
	int signal = op->how % 4 == 0 ? SIGTERM : SIGKILL;
	unsigned dies = op->which % (2 * ACTORS);

	play_tell(p, "the daemon dies of signal %d", signal);
	play_crash(p, signal, dies < ACTORS ? &dies : NULL);
}

/* ---- looking and coming back ---- */

/* Lists by a prefix what the client may see. */
void play_list(struct play *p, const struct op *op)
{
	struct connection *conn = play_pick_connection(p, op->who);
	struct model_buffer *b;
	size_t i = 0;

	if (!conn)
		return;
	play_tell(p, "%u lists", play_number(p, conn));
	raw_call(&conn->raw, REQUEST(LIST, List, list, SET(holders, op->how & 1)));
	list_foreach (b, &p->model.buffers, link) {
		const Gpushm__Proto__ListReply *list = conn->raw.reply->list;

		if (!model_visible(conn->session->process, b))
			continue;
		if (i == list->n_buffers)
			play_fail("uid %u does not see \"%s\"", conn->session->process->uid,
				  b->name);
		play_check_buffer(p, list->buffers[i++], b, conn->session->process, false);
	}
	if (i < conn->raw.reply->list->n_buffers)
		play_fail("uid %u sees what it may not", conn->session->process->uid);
}

void play_compare(struct play *p, const struct op *op)
{
	play_tell(p, "everything is compared");
	play_compare_all(p);
}

/* A session that has lost its connection. */
static struct model_session *pick_suspect(struct play *p, uint32_t n)
{
	struct model_session *all[64], *s;
	unsigned found = 0;

	list_foreach (s, &p->model.sessions, link)
		if (!s->connected && found < array_size(all))
			all[found++] = s;
	return found ? all[n % found] : NULL;
}

/* A connection of this process: an existing or a new one. */
static struct connection *connection_of(struct play *p, const struct model_process *process)
{
	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		struct connection *conn = &p->connections[i];

		if (p->processes[i / 2] != process)
			continue;
		if (!conn->session)
			play_connect(p, &(struct op){ .who = i });
		if (conn->session && conn->session->waits == MODEL_IDLE)
			return conn;
	}
	return NULL;
}

/* Reclaims by the same process or, without effect, by another; some of its leases, and some twice.
 */
void play_reclaim(struct play *p, const struct op *op)
{
	struct model_session *former = pick_suspect(p, op->which);
	struct connection *conn = !former	? NULL
				  : op->how % 8 ? connection_of(p, former->process)
						: play_pick_connection(p, op->who);
	struct model_lease *leases[64], *l;
	uint64_t ids[64], number;
	unsigned n = 0;
	bool last = (op->how >> 3) % 4 != 0;

	if (!conn)
		return;
	list_foreach (l, &former->leases, session_link)
		if (n < array_size(leases) - 1 && op->which >> (8 + n) & 1)
			leases[n++] = l;
	if (n && (op->how >> 6) % 8 == 0) {
		leases[n] = leases[0];
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		ids[i] = leases[i]->id;
	play_tell(p, "%u comes back for %u leases%s", play_number(p, conn), n,
		  last ? ", and that is all" : "");
	number = former->number;
	model_reclaim(&p->model, conn->session, number, leases, n, last);
	play_send(conn, REQUEST(RECLAIM, Reclaim, reclaim, SET(session, number), .n_leases = n,
				.leases = ids, SET(last, last)));
}
