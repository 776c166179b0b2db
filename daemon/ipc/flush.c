/* SPDX-License-Identifier: MIT
 *
 * FLUSH: what was freed and waits in pools is given back to driver or kernel, and the answer comes
 * when it has been: who is told Done may give the memory to another program. All pools are flushed
 * at once, by their workers; the session then waits for one after the other. One whose GPU does not
 * answer is not waited for: the others' memory is back, and who asked is told which is not.
 */
#include "daemon/ipc/verb.h"
#include "daemon/pool/stuck.h"
#include "proto/base/own.h"
#include "proto/name.h"

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

/* Those that were not waited for, by name; why is the last one's. */
static const char *name_late(const struct session *s, char *names, size_t size)
{
	const char *why = "a driver call there took long";
	struct pool *pool;
	size_t n = 0;

	list_foreach (pool, s->service->catalog.pools, link) {
		if (!(s->flush.late & ((uint64_t)1 << pool->index)) || n >= size)
			continue;
		n += (size_t)snprintf(names + n, size - n, "%s\"%s\"", n ? ", " : "",
				      pool->config.name);
		why = stuck_why(pool) ? stuck_why(pool) : why;
	}
	return why;
}

/* 0, or *f says which pools are late. */
static int check_late(const struct session *s, struct fault *f)
{
	char names[128] = "";
	const char *why;

	if (!s->flush.late)
		return 0;
	why = name_late(s, names, sizeof(names));
	return fault(f, CODE_POOL_FAILED,
		     "what was freed in pool %s is not given back yet, all else that was asked "
		     "for is: %s",
		     names, why);
}

static void on_flushed(struct flush *flush)
{
	struct session *s = container_of(flush, struct session, flush);
	struct reply a = { 0 };
	struct fault f;

	if (wait_for_next(s))
		return;
	if (check_late(s, &f) < 0)
		reply_fault(&a, &f);
	else
		reply_done(&a);
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

int request_flush(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
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
	s->flush.late = 0;
	r = *pool ? flush_one(s, pool, f) : flush_all(s);
	if (r == 0)
		r = check_late(s, f);
	if (r == 0)
		reply_done(a);
	return r;
}
