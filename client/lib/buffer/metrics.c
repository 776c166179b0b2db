/* SPDX-License-Identifier: MIT
 *
 * METRICS: what the daemon counts. The counts are copied out of the reply before the connection is
 * released. A result that this library has no word for counts as UNKNOWN.
 */
#include "client/gpushm_metrics.h"
#include "client/lib/base/error.h"
#include "client/lib/link/request.h"
#include "proto/base/own.h"
#include "proto/code.h"

struct gpushm_metrics *gpushm_metrics_free(struct gpushm_metrics *m)
{
	if (!m)
		return NULL;
	for (size_t i = 0; i < m->n_verbs; i++) {
		free(m->verbs[i].results);
		free(m->verbs[i].buckets);
	}
	free(m->verbs);
	free(m->bounds_ns);
	free(m->driver_calls);
	free(m->pools);
	free(m);
	return NULL;
}

static int no_memory(void)
{
	return error_set(ENOMEM, "out of memory for the daemon's metrics");
}

static int nonsense(void)
{
	return error_set(EPROTO, "the daemon's reply makes no sense: metrics");
}

/* ret: malloc'd; at least one, so that it is never NULL. */
static int copy_numbers(const uint64_t *from, size_t n, uint64_t **ret)
{
	*ret = calloc(n + 1, sizeof(**ret));
	if (!*ret)
		return no_memory();
	if (n)
		memcpy(*ret, from, n * sizeof(*from));
	return 0;
}

/* All codes that this library does not know are one result, the last one. */
static int decode_results(const Gpushm__Proto__VerbMetrics *from, struct gpushm_verb_metrics *v)
{
	v->results = calloc(CODE_COUNT + 1, sizeof(*v->results));
	if (!v->results)
		return no_memory();
	for (size_t i = 0; i < from->n_results; i++) {
		struct gpushm_result *last = v->n_results ? &v->results[v->n_results - 1] : NULL;
		const char *code = code_name(i < CODE_COUNT ? (int)i : -1);

		if (from->results[i] == 0)
			continue;
		if (last && last->code == code)
			last->count += from->results[i];
		else
			v->results[v->n_results++] =
				(struct gpushm_result){ code, from->results[i] };
	}
	return 0;
}

static int decode_verb(const Gpushm__Proto__VerbMetrics *from, size_t n_bounds,
		       struct gpushm_verb_metrics *v)
{
	*v = (struct gpushm_verb_metrics){ .ns = from->ns,
					   .waits = from->waits,
					   .waited_ns = from->waited_ns };
	if (from->n_buckets != n_bounds + 1)
		return nonsense();
	if (decode_text("verb", from->has_verb, from->verb, v->verb, sizeof(v->verb)) < 0)
		return -EPROTO;
	return decode_results(from, v) < 0
		       ? -ENOMEM
		       : copy_numbers(from->buckets, from->n_buckets, &v->buckets);
}

static int decode_verbs(const Gpushm__Proto__MetricsReply *from, struct gpushm_metrics *m)
{
	int r = copy_numbers(from->bounds_ns, from->n_bounds_ns, &m->bounds_ns);

	m->n_bounds = from->n_bounds_ns;
	for (size_t i = 1; i < m->n_bounds; i++)
		if (from->bounds_ns[i] <= from->bounds_ns[i - 1])
			return nonsense();
	m->verbs = calloc(from->n_verbs + 1, sizeof(*m->verbs));
	if (r < 0 || !m->verbs)
		return no_memory();
	for (size_t i = 0; r == 0 && i < from->n_verbs; i++)
		r = decode_verb(from->verbs[i], m->n_bounds, &m->verbs[m->n_verbs++]);
	return r;
}

static int decode_driver_calls(const Gpushm__Proto__MetricsReply *from, struct gpushm_metrics *m)
{
	m->driver_calls = calloc(from->n_driver_calls + 1, sizeof(*m->driver_calls));
	if (!m->driver_calls)
		return no_memory();
	for (size_t i = 0; i < from->n_driver_calls; i++) {
		const Gpushm__Proto__DriverCall *it = from->driver_calls[i];
		struct gpushm_driver_call *to = &m->driver_calls[m->n_driver_calls++];

		*to = (struct gpushm_driver_call){ .count = it->count,
						   .failed = it->failed,
						   .ns = it->ns };
		if (decode_text("driver call", it->has_call, it->call, to->call, sizeof(to->call)) <
		    0)
			return -EPROTO;
	}
	return 0;
}

static int decode_pools(const Gpushm__Proto__MetricsReply *from, struct gpushm_metrics *m)
{
	m->pools = calloc(from->n_pools + 1, sizeof(*m->pools));
	if (!m->pools)
		return no_memory();
	for (size_t i = 0; i < from->n_pools; i++) {
		const Gpushm__Proto__PoolMetrics *it = from->pools[i];
		struct gpushm_pool_metrics *to = &m->pools[m->n_pools];

		if (!it->pool)
			return nonsense();
		if (!decode_kind_known(it->pool))
			continue;
		*to = (struct gpushm_pool_metrics){ .filling = it->filling,
						    .sealed = it->sealed,
						    .shared = it->shared };
		if (decode_pool(it->pool, &to->pool) < 0)
			return -EPROTO;
		m->n_pools++;
	}
	return 0;
}

static void decode_streams(const Gpushm__Proto__StreamMetrics *from,
			   struct gpushm_stream_metrics *ret)
{
	if (!from)
		return;
	*ret = (struct gpushm_stream_metrics){ .known = 1,
					       .running = from->running,
					       .ended = from->ended,
					       .orphaned = from->orphaned,
					       .every = from->every,
					       .latest = from->latest,
					       .share = from->share,
					       .waiting = from->waiting,
					       .frames = from->frames,
					       .stalls = from->stalls,
					       .stalled_ns = from->stalled_ns,
					       .dropped = from->dropped,
					       .redone = from->redone,
					       .lost = from->lost,
					       .reader_deaths = from->reader_deaths,
					       .producer_deaths = from->producer_deaths };
}

/* Whatever this returns, gpushm_metrics_free() frees what it has allocated. */
static int read_metrics(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__MetricsReply *from = reply->metrics;
	struct gpushm_metrics *m = to;
	int r;

	m->started_ns = from->started_ns;
	m->read_leases = from->read_leases;
	m->write_leases = from->write_leases;
	m->reader_deaths = from->reader_deaths;
	m->writer_deaths = from->writer_deaths;
	m->creator_deaths = from->creator_deaths;
	m->restarts = from->restarts;
	m->restored = from->restored;
	m->lost = from->lost;
	decode_streams(from->streams, &m->streams);
	r = decode_verbs(from, m);
	if (r == 0)
		r = decode_driver_calls(from, m);
	return r < 0 ? r : decode_pools(from, m);
}

int gpushm_metrics(struct gpushm *c, struct gpushm_metrics **ret)
{
	Gpushm__Proto__Metrics metrics = GPUSHM__PROTO__METRICS__INIT;
	struct gpushm_metrics *m = calloc(1, sizeof(*m));
	int r = m ? request_read(c, request_with(METRICS, metrics, &metrics), read_metrics, m)
		  : no_memory();

	if (r < 0)
		gpushm_metrics_free(m);
	else
		*ret = m;
	return r;
}
