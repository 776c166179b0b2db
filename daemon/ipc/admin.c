/* SPDX-License-Identifier: MIT
 *
 * UNLINK, CLEAN, EVICT, KEEP, ASK, RENAME, FLUSH and RESTART: requests that manage buffers, pools
 * and the daemon. The client's half is client/lib/buffer/admin.c.
 */
#include "daemon/ipc/request.h"

#include "daemon/ipc/service.h"
#include "proto/base/own.h"
#include "proto/base/text.h"
#include "proto/name.h"

#include <stdio.h>

int request_unlink(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		   struct fault *f)
{
	const Gpushm__Proto__Unlink *m = q->unlink;
	char key[KEY_MAX + 1];
	int r = request_key(s, "UNLINK", m->has_name, m->name, key, f);

	if (r == 0)
		r = catalog_unlink(&s->service->catalog, s->process, key, m->buffer, f);
	return reply_result(reply, r);
}

int request_clean(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		  struct fault *f)
{
	const Gpushm__Proto__Clean *m = q->clean;
	char key[KEY_MAX + 1];
	int r = request_key(s, "CLEAN", m->has_name, m->name, key, f);

	if (r == 0)
		r = catalog_clean(&s->service->catalog, s->process, key, m->buffer, f);
	return reply_result(reply, r);
}

int request_evict(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		  struct fault *f)
{
	const Gpushm__Proto__Evict *m = q->evict;
	char key[KEY_MAX + 1];
	int r = request_key(s, "EVICT", m->has_name, m->name, key, f);

	if (r == 0)
		r = catalog_evict(&s->service->catalog, s->process, key, m->buffer, m->source, f);
	return reply_result(reply, r);
}

int request_keep(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Keep *m = q->keep;
	char key[KEY_MAX + 1];
	int r = request_key(s, "KEEP", m->has_name, m->name, key, f);

	if (r == 0)
		r = catalog_keep(&s->service->catalog, s->process, key, m->keep_ms, m->priority,
				 m->source, f);
	return reply_result(reply, r);
}

int request_ask(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		struct fault *f)
{
	const Gpushm__Proto__Ask *m = q->ask;
	struct catalog *c = &s->service->catalog;
	char key[KEY_MAX + 1];
	int r = request_key(s, "ASK", m->has_name, m->name, key, f);

	if (r == 0)
		r = catalog_ask(c, s->process, key, !m->back, f);
	if (r < 0)
		return r;
	reply_done(reply);
	SET_SOME(&reply->u.done, yield_ms, c->accounts.config->yield_timeout * 1000ull);
	return 0;
}

int request_rename(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		   struct fault *f)
{
	const Gpushm__Proto__Rename *m = q->rename;
	char from[KEY_MAX + 1], to[KEY_MAX + 1];
	int r = request_key(s, "RENAME", m->has_name, m->name, from, f);

	if (r == 0)
		r = request_key(s, "RENAME", m->has_to, m->to, to, f);
	if (r == 0)
		r = catalog_rename(&s->service->catalog, s->process, from, to, m->replace, f);
	return reply_result(reply, r);
}

/* ---- FLUSH ---- */

/* Freed memory that waits in pools goes back to the driver or the kernel, and the reply comes when
 * that is done: after it another program can allocate the memory. The workers flush all pools at
 * once; the session waits for one pool after the other. It does not wait for a pool whose GPU does
 * not respond: the error names that pool, and the memory of the others is back. */

/* Pool ids only grow, so the id of the last pool is enough to know which pools are left; a pool
 * that comes or goes meanwhile does no harm. Returns whether a pool is waited for. */
static bool wait_for_next(struct session *s)
{
	struct pool *pool;

	list_foreach (pool, s->service->catalog.pools, link) {
		if (pool->id <= s->pending.flushed_pool ||
		    !catalog_pool_is_open_to(pool, s->process))
			continue;
		s->pending.flushed_pool = pool->id;
		if (pool_flush_wait(pool, &s->pending.flush))
			return true;
	}
	return false;
}

/* Writes the names of the pools that were not waited for. Returns why, for the last of them. */
static const char *name_late(const struct session *s, char *names, size_t size)
{
	const char *why = "a driver call there took long";
	struct pool *pool;

	list_foreach (pool, s->service->catalog.pools, link) {
		if (!(s->pending.flush.late & ((uint64_t)1 << pool->index)))
			continue;
		text_append(names, size, "%s\"%s\"", *names ? ", " : "", pool->config.name);
		why = pool_stuck(pool) ? pool_stuck(pool) : why;
	}
	return why;
}

/* 0, or -errno with *f, which names the pools that are late. */
static int check_late(const struct session *s, struct fault *f)
{
	char names[128] = "";
	const char *why;

	if (!s->pending.flush.late)
		return 0;
	why = name_late(s, names, sizeof(names));
	return fault(f, CODE_POOL_FAILED,
		     "what was freed in pool %s is not given back yet, all else that was asked "
		     "for is: %s",
		     names, why);
}

static void on_flushed(struct flush *flush)
{
	struct session *s = container_of(flush, struct session, pending.flush);
	struct reply reply = { 0 };
	struct fault f;

	if (wait_for_next(s))
		return;
	if (check_late(s, &f) < 0)
		reply_fault(&reply, &f);
	else
		reply_done(&reply);
	s->on_reply(s, &reply);
}

static int flush_one(struct session *s, const char *name, struct fault *f)
{
	struct pool *pool = NULL;
	int r = catalog_lookup_pool(&s->service->catalog, name, &pool, f);

	if (r < 0)
		return r;
	if (!catalog_pool_is_open_to(pool, s->process))
		return catalog_refuse_pool(pool, s->process, f);
	pool_flush(pool);
	s->pending.flushed_pool = UINT32_MAX;
	return pool_flush_wait(pool, &s->pending.flush) ? -EINPROGRESS : 0;
}

static int flush_all(struct session *s)
{
	struct pool *pool;

	list_foreach (pool, s->service->catalog.pools, link)
		if (catalog_pool_is_open_to(pool, s->process))
			pool_flush(pool);
	s->pending.flushed_pool = 0;
	return wait_for_next(s) ? -EINPROGRESS : 0;
}

int request_flush(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		  struct fault *f)
{
	const Gpushm__Proto__Flush *m = q->flush;
	char pool[POOL_NAME_MAX + 1];
	int r;

	if (m->pool.len && name_check_pool(m->pool.data, m->pool.len))
		return fault(f, CODE_NAME, "FLUSH: pool name: %s",
			     name_check_pool(m->pool.data, m->pool.len));
	snprintf(pool, sizeof(pool), "%.*s", (int)m->pool.len, (const char *)m->pool.data);
	s->pending.flush.on_done = on_flushed;
	s->pending.flush.late = 0;
	r = *pool ? flush_one(s, pool, f) : flush_all(s);
	if (r == 0)
		r = check_late(s, f);
	return reply_result(reply, r);
}

/* ---- RESTART ---- */

/* Only a refusal gets a reply. The client learns of the restart itself as everybody does: the
 * connection ends, and the next one leads to a daemon of the same identity. */

static void on_refused(struct restarter *r, const struct fault *f)
{
	struct session *s = container_of(r, struct session, pending.restarter);
	struct reply reply = { 0 };

	reply_fault(&reply, f);
	s->on_reply(s, &reply);
}

int request_restart(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		    struct fault *f)
{
	if (!s->process->admin)
		return fault(f, CODE_ACCESS,
			     "only administrators may restart gpushmd: root, its own user, and "
			     "admin-group in gpushmd.conf(5)");
	s->pending.restarter.on_refused = on_refused;
	return reexec_ask(&s->service->reexec, &s->pending.restarter, f);
}
