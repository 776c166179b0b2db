/* SPDX-License-Identifier: MIT
 *
 * METRICS: what the daemon counts, beside the numbers that STATUS and POOLS return. Nothing in it
 * is about a user, so each client gets the same. It walks pools, verbs, streams and
 * the buffers that have a twin, but no others. The client's half is client/lib/buffer/query.c.
 */
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"
#include "daemon/pool/device.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <string.h>

static bool was_used(const struct verb_counts *v)
{
	uint64_t all = 0;

	for (size_t i = 0; i < CODE_COUNT; i++)
		all |= v->results[i];
	return all != 0;
}

/* The counts stay where they are: the reply is packed before anything changes them. */
static void fill_verb(Gpushm__Proto__VerbMetrics *m, unsigned verb, struct verb_counts *v)
{
	SET(m, verb, reply_text(verb ? request_verb(verb) : "unknown"));
	m->n_results = CODE_COUNT;
	m->results = v->results;
	m->n_buckets = array_size(v->buckets);
	m->buckets = v->buckets;
	SET_SOME(m, ns, v->ns);
	SET_SOME(m, waits, v->waits);
	SET_SOME(m, waited_ns, v->waited_ns);
}

static int fill_verbs(Gpushm__Proto__MetricsReply *m, struct service *s)
{
	m->n_bounds_ns = LATENCY_BOUNDS;
	m->bounds_ns = (uint64_t *)latency_bounds;
	reply_list(s, m, verbs, VERBS_MAX);
	for (unsigned i = 0; i < VERBS_MAX; i++) {
		Gpushm__Proto__VerbMetrics *it;

		if (!was_used(&s->verbs[i]))
			continue;
		it = reply_append(s, m, verbs, verb_metrics);
		if (!it)
			return -ENOMEM;
		fill_verb(it, i, &s->verbs[i]);
	}
	return 0;
}

static int fill_driver_calls(Gpushm__Proto__MetricsReply *m, struct service *s)
{
	struct driver_call *calls = reply_alloc(s, DRIVER_CALLS_MAX * sizeof(*calls));
	size_t n = calls ? driver_calls(calls) : 0;

	reply_list(s, m, driver_calls, n);
	for (size_t i = 0; i < n; i++) {
		Gpushm__Proto__DriverCall *it = reply_append(s, m, driver_calls, driver_call);

		if (!it)
			return -ENOMEM;
		SET(it, call, reply_text(calls[i].name));
		SET_SOME(it, count, calls[i].count);
		SET_SOME(it, failed, calls[i].failed);
		SET_SOME(it, ns, calls[i].ns);
	}
	return calls ? 0 : -ENOMEM;
}

static void fill_cache(Gpushm__Proto__PoolMetrics *m, const struct catalog *c,
		       const struct pool *pool)
{
	const struct cache_counts *n = &c->cache_counts[pool->index];
	const struct cache_bytes bytes = catalog_cache_bytes(c, pool);

	SET_SOME(m, evictable_bytes, bytes.evictable);
	SET_SOME(m, kept_bytes, bytes.kept);
	SET_SOME(m, uses, n->uses);
	SET_SOME(m, restores, n->restores);
	SET_SOME(m, restored_ns, n->restored_ns);
	SET_SOME(m, not_yielded, n->not_yielded);
}

/* Both lists are in the order of the pools. */
static int fill_pools(Gpushm__Proto__MetricsReply *m, struct session *s, struct fault *f)
{
	Gpushm__Proto__Pool **pools = NULL;
	const struct pool *pool;
	size_t n;

	if (query_pools(s, &n, &pools, f) < 0)
		return -ENOMEM;
	reply_list(s->service, m, pools, n);
	list_foreach (pool, s->service->catalog.pools, link) {
		const uint32_t *states = s->service->catalog.n_states[pool->index];
		Gpushm__Proto__PoolMetrics *it = reply_append(s->service, m, pools, pool_metrics);

		if (!it)
			return reply_no_memory(f);
		it->pool = pools[m->n_pools - 1];
		it->pool->has_why = false; /* so that it fits a frame */
		SET_SOME(it, filling, states[BUFFER_FILLING]);
		SET_SOME(it, sealed, states[BUFFER_SEALED]);
		SET_SOME(it, shared, states[BUFFER_SHARED]);
		fill_cache(it, &s->service->catalog, pool);
	}
	return 0;
}

static void fill_lives(Gpushm__Proto__MetricsReply *m, const struct service *s)
{
	const struct catalog *c = &s->catalog;
	uint64_t age = clock_monotonic_ns() - s->started_ns;

	SET_SOME(m, read_leases, c->n_leases - c->n_write_leases);
	SET_SOME(m, write_leases, c->n_write_leases);
	SET_SOME(m, away_leases, c->n_away);
	SET_SOME(m, parked, s->reaper.pidfds.parked);
	SET_SOME(m, evictions, c->evictions);
	SET_SOME(m, wanted, c->n_wanted);
	SET_SOME(m, reader_deaths, s->reaper.deaths[ROLE_READER]);
	SET_SOME(m, writer_deaths, s->reaper.deaths[ROLE_WRITER]);
	SET_SOME(m, creator_deaths, s->reaper.deaths[ROLE_CREATOR]);
	SET_SOME(m, restarts, c->restarts.n);
	SET_SOME(m, restored, c->restarts.restored);
	SET_SOME(m, lost, c->restarts.lost);
	SET_SOME(m, started_ns, clock_realtime_ns() - age);
}

static int fill_streams(Gpushm__Proto__MetricsReply *m, struct service *service)
{
	Gpushm__Proto__StreamMetrics *it =
		reply_message(service, &gpushm__proto__stream_metrics__descriptor);
	const struct catalog *c = &service->catalog;
	const struct stream_counts counts = catalog_stream_counts(c);
	const struct stream_states states = catalog_stream_states(c, clock_monotonic_ns());

	if (!it)
		return -ENOMEM;
	m->streams = it;
	SET_SOME(it, running, states.streams[STREAM_RUNNING]);
	SET_SOME(it, ended, states.streams[STREAM_ENDED]);
	SET_SOME(it, orphaned, states.streams[STREAM_ORPHANED]);
	SET_SOME(it, every, states.readers[STREAM_EVERY]);
	SET_SOME(it, latest, states.readers[STREAM_LATEST]);
	SET_SOME(it, share, states.readers[STREAM_SHARE]);
	SET_SOME(it, waiting, states.waiting);
	SET_SOME(it, frames, counts.frames);
	SET_SOME(it, stalls, counts.stalls);
	SET_SOME(it, stalled_ns, counts.stalled_ns);
	SET_SOME(it, dropped, counts.drops);
	SET_SOME(it, redone, counts.redone);
	SET_SOME(it, lost, counts.lost);
	SET_SOME(it, reader_deaths, c->reader_deaths);
	SET_SOME(it, producer_deaths, c->producer_deaths);
	return 0;
}

int request_metrics(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		    struct fault *f)
{
	Gpushm__Proto__MetricsReply *m = reply_build(s, reply, metrics, METRICS, metrics_reply);

	fill_lives(m, s->service);
	if (fill_verbs(m, s->service) < 0 || fill_driver_calls(m, s->service) < 0 ||
	    fill_streams(m, s->service) < 0)
		return reply_no_memory(f);
	return fill_pools(m, s, f);
}
