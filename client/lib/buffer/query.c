/* SPDX-License-Identifier: MIT
 *
 * STAT, LIST, POOLS, STATUS and METRICS: what the daemon says about buffers, pools and
 * itself. Everything is copied out of the reply before the connection is released. What a reply
 * does not say is filled in here: the kind of a buffer's pool, and which GPU of this process a
 * pool's is.
 */
#include "client/gpushm_metrics.h"
#include "client/gpushm_query.h"
#include "client/lib/base/error.h"
#include "client/lib/link/records.h"
#include "client/lib/link/request.h"
#include "proto/base/own.h"
#include "proto/code.h"

/* ---- STAT ---- */

static int decode_stat(const struct gpushm *c, const Gpushm__Proto__Buffer *from, struct result *r)
{
	const struct pool_info *pool = connection_pool(c, from->pool);
	struct gpushm_stat *s;
	int e = records_read(r, records_stat, &from->base, (void **)&s);

	if (e < 0)
		return e;
	/* A pool that is new since HELLO, or of an unknown kind, has no kind here. */
	if (pool)
		s->kind = pool->map.kind;
	if (pool && !s->pool[0])
		memcpy(s->pool, pool->name, sizeof(pool->name));
	return 0;
}

static int read_stat(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	return decode_stat(c, reply->stat, to);
}

int gpushm_stat(struct gpushm *c, const char *name, uint64_t timeout_ms, uint32_t flags,
		struct gpushm_stat **ret)
{
	Gpushm__Proto__Stat stat = GPUSHM__PROTO__STAT__INIT;
	int r = request_set_name(name, &stat.has_name, &stat.name);

	if (r == 0)
		r = error_flags(flags, GPUSHM_HOLDERS);
	SET_SOME(&stat, wait_ms, timeout_ms);
	SET_SOME(&stat, holders, !!(flags & GPUSHM_HOLDERS));
	return r < 0 ? r : request_one(c, request_with(STAT, stat, &stat), read_stat, ret);
}

int gpushm_wait(struct gpushm *c, const char *name, uint64_t timeout_ms)
{
	struct gpushm_stat *st = NULL;
	int r = gpushm_stat(c, name, timeout_ms, 0, &st);

	/* The daemon does not let the creator wait for a buffer that it is still filling. */
	if (r == 0 && st->state == GPUSHM_FILLING)
		r = error_set(EAGAIN, "buffer \"%s\" is still being filled", name);
	gpushm_free(st);
	return r;
}

/* ---- LIST ---- */

struct listing {
	struct result result;
	uint64_t after; /* id of the last buffer that is in the list */
	bool more;
};

/* The daemon's ids grow. A page that does not continue after the last one would be asked for again
 * and again: that is a violation. */
static int read_page(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__ListReply *page = reply->list;
	struct listing *l = to;

	if (page->more && page->n_buffers == 0)
		return error_set(EPROTO, "the daemon's list has a page without buffers");
	for (size_t i = 0; i < page->n_buffers; i++) {
		int r = decode_stat(c, page->buffers[i], &l->result);

		if (r < 0)
			return r;
		if (page->buffers[i]->id <= l->after)
			return error_set(EPROTO, "the daemon's list is not in order");
		l->after = page->buffers[i]->id;
	}
	l->more = page->more;
	return 0;
}

int gpushm_list(struct gpushm *c, const char *prefix, uint32_t flags, struct gpushm_stat ***ret,
		size_t *ret_n)
{
	Gpushm__Proto__List list = GPUSHM__PROTO__LIST__INIT;
	struct listing l = { .more = true };
	int r = request_set_name(prefix ? prefix : "", &list.has_prefix, &list.prefix);

	if (r == 0)
		r = error_flags(flags, GPUSHM_HOLDERS);
	SET_SOME(&list, holders, !!(flags & GPUSHM_HOLDERS));
	while (r == 0 && l.more) {
		SET(&list, after, l.after);
		r = request_read(c, request_with(LIST, list, &list), read_page, &l);
	}
	if (r == 0)
		r = result_list(&l.result, ret_n, ret);
	result_done(&l.result);
	return r;
}

/* ---- POOLS ---- */

/* Leaves out pools of a kind that this library does not know. */
static int read_pools(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__PoolsReply *from = reply->pools;
	int r = 0;

	for (size_t i = 0; i < from->n_pools && r == 0; i++) {
		struct gpushm_pool *p;

		if (!decode_kind_known(from->pools[i]))
			continue;
		r = records_read(to, records_pool, &from->pools[i]->base, (void **)&p);
		if (r == 0 && !p->name[0])
			r = error_set(EPROTO,
				      "the daemon's reply makes no sense: a pool without a name");
	}
	return r;
}

int gpushm_pools(struct gpushm *c, struct gpushm_pool ***ret, size_t *ret_n)
{
	static const unsigned char none[UUID_BYTES];
	_cleanup_(result_done) struct result result = { 0 };
	Gpushm__Proto__Pools pools = GPUSHM__PROTO__POOLS__INIT;
	int r = request_read(c, request_with(POOLS, pools, &pools), read_pools, &result);

	/* After the connection is released, because starting the driver takes time. With host pools
	 * only, the driver is not started. */
	for (size_t i = 0; r == 0 && i < result.n; i++) {
		struct gpushm_pool *p = result.items[i];

		if (memcmp(p->device_uuid, none, sizeof(none)) != 0)
			p->device = map_device_ordinal(p->device_uuid);
	}
	return r < 0 ? r : result_list(&result, ret_n, ret);
}

/* ---- STATUS ---- */

static int read_status(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	struct gpushm_status *s;
	int r = records_read(to, records_status, &reply->status->base, (void **)&s);

	if (r == 0)
		s->kept = c->wait_for_successor;
	return r;
}

int gpushm_status(struct gpushm *c, struct gpushm_status **ret)
{
	Gpushm__Proto__Status status = GPUSHM__PROTO__STATUS__INIT;

	return request_one(c, request_with(STATUS, status, &status), read_status, ret);
}

/* ---- METRICS ---- */

/* All codes that this library does not know are one result, the last one. */
static int add_results(struct result *r, const Gpushm__Proto__VerbMetrics *from,
		       struct gpushm_verb_metrics *v)
{
	v->results = result_alloc(r, (CODE_COUNT + 1) * sizeof(*v->results));
	if (!v->results)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_results; i++) {
		struct gpushm_result *last = v->n_results ? v->results[v->n_results - 1] : NULL;
		const char *code = code_name(i < CODE_COUNT ? (int)i : -1);

		if (from->results[i] == 0)
			continue;
		if (!last || last->code != code) {
			last = result_alloc(r, sizeof(*last));
			if (!last)
				return -ENOMEM;
			*last = (struct gpushm_result){ sizeof(*last), code, 0 };
			v->results[v->n_results++] = last;
		}
		last->count += from->results[i];
	}
	return 0;
}

static int check_metrics(const Gpushm__Proto__MetricsReply *m)
{
	bool good = true;

	for (size_t i = 1; i < m->n_bounds_ns; i++)
		good = good && m->bounds_ns[i] > m->bounds_ns[i - 1];
	for (size_t i = 0; i < m->n_verbs; i++)
		good = good && m->verbs[i]->n_buckets == m->n_bounds_ns + 1;
	for (size_t i = 0; i < m->n_pools; i++)
		good = good && m->pools[i]->pool;
	return good ? 0 : error_set(EPROTO, "the daemon's reply makes no sense: metrics");
}

/* Leaves out pools of a kind that this library does not know. */
static void drop_unknown_pools(Gpushm__Proto__MetricsReply *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_pools; i++)
		if (decode_kind_known(m->pools[i]->pool))
			m->pools[n++] = m->pools[i];
	m->n_pools = n;
}

static int read_metrics(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	struct gpushm_metrics *m;
	int r = check_metrics(reply->metrics);

	if (r < 0)
		return r;
	drop_unknown_pools(reply->metrics);
	r = records_read(to, records_metrics, &reply->metrics->base, (void **)&m);
	for (size_t i = 0; r == 0 && i < m->n_verbs; i++)
		r = add_results(to, reply->metrics->verbs[i], m->verbs[i]);
	return r;
}

int gpushm_metrics(struct gpushm *c, struct gpushm_metrics **ret)
{
	Gpushm__Proto__Metrics metrics = GPUSHM__PROTO__METRICS__INIT;

	return request_one(c, request_with(METRICS, metrics, &metrics), read_metrics, ret);
}
