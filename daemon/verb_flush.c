/* SPDX-License-Identifier: MIT
 *
 * FLUSH: what was freed and waits in pools is given back to driver or kernel, and the answer comes
 * when it has been: who is told Done may give the memory to another program. All pools are flushed
 * at once, by their workers; the session then waits for one after the other.
 */
#include "daemon/verb.h"
#include "proto/name.h"
#include "proto/own.h"

#include <stdio.h>

/* Ids only grow, so that the last one says which pools are still to be waited for; a pool that came
 * or went meanwhile does no harm. Returns whether one is waited for. */
static bool wait_for_next(struct session *s)
{
	struct pool *pool;

	list_foreach (pool, s->service->catalog.pools, link) {
		if (pool->id <= s->flushed || !catalog_pool_is_open_to(pool, s->process))
			continue;
		s->flushed = pool->id;
		if (pool_flush_wait(pool, &s->flush))
			return true;
	}
	return false;
}

static void on_flushed(struct flush *flush)
{
	struct session *s = container_of(flush, struct session, flush);
	struct answer a = { 0 };

	if (wait_for_next(s))
		return;
	answer_done(&a);
	s->on_answer(s, &a);
}

static int flush_one(struct session *s, const char *name, struct fault *f)
{
	struct pool *pool = NULL;
	int r = catalog_pool(&s->service->catalog, name, &pool, f);

	if (r < 0)
		return r;
	if (!catalog_pool_is_open_to(pool, s->process))
		return catalog_refuse_pool(pool, s->process, f);
	pool_flush(pool);
	s->flushed = UINT32_MAX;
	return pool_flush_wait(pool, &s->flush) ? -EINPROGRESS : 0;
}

static int flush_all(struct session *s)
{
	struct pool *pool;

	list_foreach (pool, s->service->catalog.pools, link)
		if (catalog_pool_is_open_to(pool, s->process))
			pool_flush(pool);
	s->flushed = 0;
	return wait_for_next(s) ? -EINPROGRESS : 0;
}

int verb_flush(struct session *s, const Gpushm__Proto__Request *q, struct answer *a,
	       struct fault *f)
{
	const Gpushm__Proto__Flush *m = q->flush;
	char pool[POOL_NAME_MAX + 1];
	int r;

	if (m->pool.len && name_check_pool(m->pool.data, m->pool.len))
		return fault(f, CODE_NAME, "FLUSH: pool name: %s",
			     name_check_pool(m->pool.data, m->pool.len));
	snprintf(pool, sizeof(pool), "%.*s", (int)m->pool.len, (const char *)m->pool.data);
	s->flush.on_done = on_flushed;
	r = *pool ? flush_one(s, pool, f) : flush_all(s);
	if (r == 0)
		answer_done(a);
	return r;
}
