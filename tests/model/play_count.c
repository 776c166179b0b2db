/* SPDX-License-Identifier: MIT
 *
 * Compares everything at once: all lists, all counts, and all stored fds.
 */
#include "tests/model/play.h"

#include "proto/base/own.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* ---- all of it ---- */

static void check_list(struct play *p)
{
	struct model_buffer *b;
	uint64_t after = 0;
	bool more = true;
	size_t i = 0, n = 0;

	list_foreach (b, &p->model.buffers, link) {
		if (i == n) {
			if (!more)
				play_fail("\"%s\" is not listed", play_name_of(b));
			play_look(p, REQUEST(LIST, List, list, SET(after, after), SET(holders, 1)));
			n = p->eye.reply->list->n_buffers;
			more = p->eye.reply->list->more;
			i = 0;
		}
		if (i == n)
			play_fail("\"%s\" is not listed", play_name_of(b));
		if (p->eye.reply->list->buffers[i]->id <= after)
			play_fail("the list is not in the order of ids");
		after = p->eye.reply->list->buffers[i]->id;
		play_check_buffer(p, p->eye.reply->list->buffers[i++], b, p->self, false);
	}
	if (i < n || more) {
		play_look(p, REQUEST(LIST, List, list, SET(after, after)));
		if (p->eye.reply->list->n_buffers)
			play_fail("a buffer %" PRIu64 " is listed that there is not",
				  p->eye.reply->list->buffers[0]->id);
	}
}

static void check_pool(struct play *p, const Gpushm__Proto__Pool *told)
{
	struct model_pool *pool = model_pool_by_id(&p->model, told->id);

	if (!pool)
		return;
	play_same(told->failed, pool->fails || pool->inherited, "the failure", pool->name);
	play_same(told->used_bytes, model_used(&p->model, pool), "used bytes", pool->name);
	play_same(told->buffers, model_blocks(&p->model, pool), "number of buffers", pool->name);
	play_same(told->suspect_bytes, model_suspect_bytes(&p->model, pool), "suspect bytes",
		  pool->name);
	if (pool->vague)
		return;
	play_same(told->pending, model_pending(pool), "what waits", pool->name);
	play_same(told->pending_bytes, model_pending_bytes(pool), "bytes that wait", pool->name);
}

/* A pool that the model has not, with something in it; NULL: there is none. */
static const Gpushm__Proto__Pool *find_stranger(struct play *p, const Gpushm__Proto__PoolsReply *in)
{
	for (size_t i = 0; i < in->n_pools; i++) {
		const Gpushm__Proto__Pool *told = in->pools[i];

		if (!model_pool_by_id(&p->model, told->id) &&
		    (!told->failed || told->used_bytes || told->buffers))
			return told;
	}
	return NULL;
}

/* The last memory of an inherited pool goes by the thread of its driver, a moment after its buffer.
 */
static const Gpushm__Proto__PoolsReply *ask_pools(struct play *p)
{
	const Gpushm__Proto__Pool *stranger;

	for (int waited = 0;; waited += 10) {
		play_look(p, REQUEST(POOLS, Pools, pools));
		stranger = find_stranger(p, p->eye.reply->pools);
		if (!stranger)
			return p->eye.reply->pools;
		if (waited > p->deadline_ms)
			play_fail("there is a pool %u that there is not: %s, %" PRIu64
				  " bytes of %u buffers",
				  stranger->id, stranger->failed ? "failed" : "it works",
				  stranger->used_bytes, stranger->buffers);
		poll(NULL, 0, 10);
	}
}

static void check_pools(struct play *p)
{
	const Gpushm__Proto__PoolsReply *pools = ask_pools(p);
	struct model_pool *pool;

	for (size_t i = 0; i < pools->n_pools; i++)
		check_pool(p, pools->pools[i]);
	list_foreach (pool, &p->model.pools, link) {
		bool told = false;

		for (size_t i = 0; i < pools->n_pools; i++)
			told = told || pools->pools[i]->id == pool->id;
		/* An inherited pool without buffers is closed when it is looked up the next time.
		 */
		if (!told && !(pool->inherited && model_blocks(&p->model, pool) == 0))
			play_fail("pool %u, \"%s\", is not told", pool->id, pool->name);
	}
}

static void check_kept(struct play *p)
{
	struct model_buffer *b;
	unsigned memories = 0, tables = 0;

	list_foreach (b, &p->model.buffers, link) {
		if (b->state == MODEL_FILLING)
			continue;
		memories += b->pool->kind != MODEL_MEMPOOL && !b->hollow;
		tables += b->has_table;
	}
	play_same(supervisor_count(&p->supervisor, 'm'), memories, "the memories", "what is kept");
	play_same(supervisor_count(&p->supervisor, 't'), tables, "the tables", "what is kept");
	play_same(supervisor_count(&p->supervisor, 'j'), 1, "the journals", "what is kept");
}

void play_compare_all(struct play *p)
{
	check_list(p);
	check_pools(p);
	check_kept(p);
}

/* ---- what is counted ---- */

static void check_usage(struct play *p, const Gpushm__Proto__Usage *u)
{
	char whose[32];

	snprintf(whose, sizeof(whose), "uid %u", u->uid);
	play_same(u->bytes, model_bytes(&p->model, u->uid), "bytes", whose);
	play_same(u->buffers, model_buffers(&p->model, u->uid), "buffers", whose);
	play_same(u->leases, model_leases(&p->model, u->uid), "leases", whose);
	play_same(u->peers, model_peers(&p->model, u->uid), "connections", whose);
	play_same(u->bytes_max, MODEL_BYTES_MAX, "most bytes", whose);
}

/* A user without anything has no account; any other user has one. */
static void check_accounts(struct play *p, const Gpushm__Proto__StatusReply *st)
{
	struct model_process *process;

	for (size_t i = 0; i < st->n_usage; i++)
		check_usage(p, st->usage[i]);
	list_foreach (process, &p->model.processes, link) {
		uid_t uid = process->uid;
		bool told = false;

		for (size_t i = 0; i < st->n_usage; i++)
			told = told || st->usage[i]->uid == uid;
		play_same(told,
			  model_buffers(&p->model, uid) || model_leases(&p->model, uid) ||
				  model_peers(&p->model, uid),
			  "an account", "a user");
	}
}

static unsigned all_buffers(const struct model *m)
{
	const struct model_buffer *b;
	unsigned n = 0;

	list_foreach (b, &m->buffers, link)
		n++;
	return n;
}

static unsigned all_leases(const struct model *m)
{
	const struct model_buffer *b;
	unsigned n = 0;

	list_foreach (b, &m->buffers, link)
		n += model_holders(b, MODEL_READ) + model_holders(b, MODEL_WRITE);
	return n;
}

static unsigned all_peers(const struct model *m)
{
	const struct model_session *s;
	unsigned n = 0;

	list_foreach (s, &m->sessions, link)
		n += s->connected;
	return n;
}

/* A connection that has ended counts for its user until the kernel has dropped what its client did
 * not read. */
static unsigned charged_peers(const Gpushm__Proto__StatusReply *st)
{
	unsigned n = 0;

	for (size_t i = 0; i < st->n_usage; i++)
		n += st->usage[i]->peers;
	return n;
}

void play_await(struct play *p)
{
	const struct model *m = &p->model;
	const Gpushm__Proto__StatusReply *st;
	uint64_t from = play_now_ns();

	for (int waited = 0;; waited++) {
		play_look(p, REQUEST(STATUS, Status, status));
		st = p->eye.reply->status;
		/* These have no reply: a CLOSE, a closed socket, a death. */
		if ((st->peers == all_peers(m) && charged_peers(st) == all_peers(m) &&
		     st->suspects == model_suspects(m) && st->waiting == model_waiting(m) &&
		     st->buffers == all_buffers(m)) ||
		    waited > p->deadline_ms)
			break;
		poll(NULL, 0, waited > 20);
	}
	/* A wait that fails does not make the sequence slow. */
	outcome->began_ns += play_now_ns() - from;
	play_same(st->peers, all_peers(m), "connections", "all");
	play_same(st->suspects, model_suspects(m), "suspects", "all");
	play_same(st->buffers, all_buffers(m), "buffers", "all");
	play_same(st->leases, all_leases(m), "leases", "all");
	play_same(st->waiting, model_waiting(m), "those who wait", "all");
	play_same(st->violations, 0, "violations", "all");
	check_accounts(p, st);
}
