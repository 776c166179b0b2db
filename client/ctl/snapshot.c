/* SPDX-License-Identifier: MIT
 *
 * The names of all metrics. Names and labels follow Prometheus' rules: base units, and no label
 * whose values have no bound. The label UUID has the form and the case of dcgm-exporter's, so that
 * both can be joined.
 *
 * After a restart two mempools may have one name: the earlier one, in which nothing is created any
 * more, and its successor. They are one pool here, of the successor's size.
 */
#include "client/ctl/snapshot.h"

#include "proto/base/own.h"
#include "proto/base/uuid.h"
#include "proto/code.h"
#include "proto/words.h"

#include <inttypes.h>
#include <pwd.h>
#include <string.h>

/* ---- reading ---- */

void snapshot_done(struct snapshot *s)
{
	s->status = gpushm_free(s->status);
	s->metrics = gpushm_free(s->metrics);
	free_ptr(&s->pools);
	s->streams = gpushm_free(s->streams);
	s->n_pools = s->n_streams = 0;
}

static void join(struct gpushm_pool_metrics *to, const struct gpushm_pool_metrics *from)
{
	const struct gpushm_pool *b = from->pool;
	struct gpushm_pool *a = to->pool;

	if (a->failed && !b->failed)
		a->bytes = b->bytes;
	a->failed = a->failed && b->failed;
	a->used_bytes += b->used_bytes;
	a->pending_bytes += b->pending_bytes;
	a->suspect_bytes += b->suspect_bytes;
	a->pending += b->pending;
	to->filling += from->filling;
	to->sealed += from->sealed;
	to->shared += from->shared;
}

static void add_pool(struct snapshot *s, struct gpushm_pool_metrics *from)
{
	for (size_t i = 0; i < s->n_pools; i++) {
		if (strcmp(s->pools[i]->pool->name, from->pool->name) != 0)
			continue;
		join(s->pools[i], from);
		return;
	}
	s->pools[s->n_pools++] = from;
}

static int read_pools(struct snapshot *s)
{
	const struct gpushm_metrics *m = s->metrics;

	s->pools = calloc(m->n_pools + 1, sizeof(*s->pools));
	if (!s->pools)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_pools; i++)
		add_pool(s, m->pools[i]);
	return 0;
}

int snapshot_read(struct gpushm *c, unsigned by, struct snapshot *ret)
{
	struct snapshot s = { 0 };
	int r = gpushm_status(c, &s.status);

	if (r == 0)
		r = gpushm_metrics(c, &s.metrics);
	if (r == 0)
		r = read_pools(&s);
	if (r == 0 && by & SNAPSHOT_BY_STREAM)
		r = gpushm_streams(c, NULL, &s.streams, &s.n_streams);
	if (r < 0)
		snapshot_done(&s);
	*ret = s;
	return r;
}

/* ---- families ---- */

#define GAUGE(name, help, value) exposition_one(e, EXPOSITION_GAUGE, name, NULL, help, value)
#define COUNTER(name, help, value) exposition_one(e, EXPOSITION_COUNTER, name, NULL, help, value)
/* One with a sample for each of n things; the calls behind `help` write the i-th. */
#define EACH(n, type, name, unit, help, ...)                  \
	do {                                                  \
		exposition_family(e, type, name, unit, help); \
		for (size_t i = 0; i < (n); i++)              \
			__VA_ARGS__;                          \
	} while (0)

static void write_build(struct exposition *e, const struct gpushm_status *s)
{
	const char *version = strchr(s->software, ' ');

	exposition_family(e, EXPOSITION_INFO, "gpushm_build", NULL, "The daemon's version.");
	exposition_begin(e, "_info");
	exposition_label(e, "version", version ? version + 1 : s->software);
	exposition_number(e, 1);
}

static void write_daemon(struct exposition *e, const struct gpushm_status *s)
{
	write_build(e, s);
	GAUGE("gpushm_peers", "Connections.", s->peers);
	GAUGE("gpushm_suspects",
	      "Processes that closed their connection, still live, and hold leases.", s->suspects);
	GAUGE("gpushm_waiting_requests", "Requests that wait for a name or a change.", s->waiting);
	GAUGE("gpushm_retained_buffers",
	      "Buffers that were freed and that processes still have open or mapped.", s->retained);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_retained_bytes", "bytes",
		       "Memory and tables of these buffers.", s->retained_bytes);
	GAUGE("gpushm_open_fds", "File descriptors that the daemon has open; 0: not known.",
	      s->fds);
	GAUGE("gpushm_max_fds", "The most that it may have open.", s->fds_max);
	COUNTER("gpushm_violations", "Connections that were closed for breaking the protocol.",
		s->violations);
}

static uint64_t count_of(const struct gpushm_status *s, const char *code)
{
	uint64_t count = 0;

	for (size_t i = 0; i < s->n_refusals; i++)
		if (strcmp(s->refusals[i]->code, code) == 0)
			count += s->refusals[i]->count;
	return count;
}

/* All codes from the beginning: Prometheus does not see that a counter which appears has grown. */
static void write_refusals(struct exposition *e, const struct gpushm_status *s)
{
	exposition_family(e, EXPOSITION_COUNTER, "gpushm_refusals", NULL,
			  "Requests that were refused, by cause, over restarts of the daemon.");
	for (int code = CODE_OK + 1; code <= CODE_COUNT; code++) {
		const char *name = code_name(code); /* the last: UNKNOWN */

		exposition_sample(e, "_total", "code", name, count_of(s, name));
	}
}

/* ---- pools ---- */

static void pool_labels(struct exposition *e, const struct gpushm_pool *p)
{
	char uuid[UUID_TEXT + 4] = "GPU-";

	uuid_format(p->device_uuid, uuid + 4);
	exposition_begin(e, "");
	exposition_label(e, "pool", p->name);
	exposition_label(e, "kind", kind_word(p->kind));
	if (kind_of(p->kind)->on_gpu)
		exposition_label(e, "UUID", uuid);
}

static void write_pools(struct exposition *e, const struct snapshot *s)
{
#define POOLS(what, unit, help, value)                                      \
	EACH(s->n_pools, EXPOSITION_GAUGE, "gpushm_pool_" what, unit, help, \
	     pool_labels(e, s->pools[i]->pool), exposition_number(e, s->pools[i]->pool->value))
	POOLS("size_bytes", "bytes", "The most that the pool may hold.", bytes);
	POOLS("used_bytes", "bytes", "Memory of buffers that exist.", used_bytes);
	POOLS("pending_bytes", "bytes", "Memory that was freed, and is kept for the next buffer.",
	      pending_bytes);
	POOLS("suspect_bytes", "bytes",
	      "Memory that only processes hold which closed their connection.", suspect_bytes);
	POOLS("failed", NULL, "1 if nothing can be created in the pool; gpushmctl pools says why.",
	      failed != 0);
#undef POOLS
}

static void write_buffers(struct exposition *e, const struct snapshot *s)
{
	exposition_family(e, EXPOSITION_GAUGE, "gpushm_buffers", NULL, "Buffers, by state.");
	for (size_t i = 0; i < s->n_pools; i++) {
		const struct gpushm_pool_metrics *p = s->pools[i];
		const uint32_t counts[] = { [GPUSHM_FILLING] = p->filling,
					    [GPUSHM_SEALED] = p->sealed,
					    [GPUSHM_SHARED] = p->shared };

		for (unsigned state = GPUSHM_FILLING; state <= GPUSHM_SHARED; state++) {
			exposition_begin(e, "");
			exposition_label(e, "pool", p->pool->name);
			exposition_label(e, "state", state_word(state));
			exposition_number(e, counts[state]);
		}
	}
}

/* ---- requests ---- */

static void write_requests(struct exposition *e, const struct gpushm_metrics *m)
{
	exposition_family(e, EXPOSITION_COUNTER, "gpushm_requests", NULL,
			  "Requests that got a reply, by verb and result.");
	for (size_t i = 0; i < m->n_verbs; i++) {
		const struct gpushm_verb_metrics *v = m->verbs[i];

		for (size_t j = 0; j < v->n_results; j++) {
			exposition_begin(e, "_total");
			exposition_label(e, "verb", v->verb);
			exposition_label(e, "result", v->results[j]->code);
			exposition_number(e, v->results[j]->count);
		}
	}
}

/* The _count and _sum of a histogram, or of a summary without quantiles. */
static void write_summary(struct exposition *e, const char *label, const char *value,
			  uint64_t count, uint64_t ns)
{
	exposition_sample(e, "_count", label, value, count);
	exposition_begin(e, "_sum");
	exposition_label(e, label, value);
	exposition_seconds(e, ns);
}

static void write_times_of(struct exposition *e, const struct gpushm_metrics *m,
			   const struct gpushm_verb_metrics *v)
{
	uint64_t sum = 0;

	for (size_t i = 0; i <= m->n_bounds_ns; i++) {
		sum += v->buckets[i];
		exposition_begin(e, "_bucket");
		exposition_label(e, "verb", v->verb);
		exposition_bound(e, i < m->n_bounds_ns ? m->bounds_ns[i] : UINT64_MAX);
		exposition_number(e, sum);
	}
	write_summary(e, "verb", v->verb, sum, v->ns);
}

static void write_times(struct exposition *e, const struct gpushm_metrics *m)
{
	exposition_family(e, EXPOSITION_HISTOGRAM, "gpushm_request_seconds", "seconds",
			  "Time from reading a request to its reply, without those that waited "
			  "for a name or a change.");
	for (size_t i = 0; i < m->n_verbs; i++)
		write_times_of(e, m, m->verbs[i]);
	exposition_family(e, EXPOSITION_SUMMARY, "gpushm_wait_seconds", "seconds",
			  "Time of requests that waited for a name or a change.");
	for (size_t i = 0; i < m->n_verbs; i++)
		if (m->verbs[i]->waits)
			write_summary(e, "verb", m->verbs[i]->verb, m->verbs[i]->waits,
				      m->verbs[i]->waited_ns);
}

static void write_driver_calls(struct exposition *e, const struct gpushm_metrics *m)
{
	exposition_family(e, EXPOSITION_SUMMARY, "gpushm_driver_calls_seconds", "seconds",
			  "Time of the daemon's calls of the CUDA driver, by function.");
	for (size_t i = 0; i < m->n_driver_calls; i++)
		write_summary(e, "call", m->driver_calls[i]->call, m->driver_calls[i]->count,
			      m->driver_calls[i]->ns);
	exposition_family(e, EXPOSITION_COUNTER, "gpushm_driver_errors", NULL,
			  "Calls of these that returned an error.");
	for (size_t i = 0; i < m->n_driver_calls; i++)
		exposition_sample(e, "_total", "call", m->driver_calls[i]->call,
				  m->driver_calls[i]->failed);
}

/* ---- memory that comes and goes ---- */

static void write_restores(struct exposition *e, const struct snapshot *s)
{
	exposition_family(e, EXPOSITION_SUMMARY, "gpushm_pool_restore_seconds", "seconds",
			  "For how long processes filled the memory of an evicted buffer.");
	for (size_t i = 0; i < s->n_pools; i++)
		write_summary(e, "pool", s->pools[i]->pool->name, s->pools[i]->restores,
			      s->pools[i]->restored_ns);
}

static void write_cache(struct exposition *e, const struct snapshot *s)
{
#define CACHE(what, type, unit, suffix, help, member)           \
	EACH(s->n_pools, type, "gpushm_pool_" what, unit, help, \
	     exposition_sample(e, suffix, "pool", s->pools[i]->pool->name, s->pools[i]->member))
	CACHE("evictable_bytes", EXPOSITION_GAUGE, "bytes", "",
	      "Memory of buffers with a twin that may go when some is needed.", evictable_bytes);
	CACHE("kept_bytes", EXPOSITION_GAUGE, "bytes", "",
	      "Memory of buffers with a twin that stays for a while, or always.", kept_bytes);
	CACHE("uses", EXPOSITION_COUNTER, NULL, "_total",
	      "Opens and resumes of buffers with a twin that got the memory.", uses);
	CACHE("not_yielded", EXPOSITION_COUNTER, NULL, "_total",
	      "Buffers that were wanted for a create, until it failed.", not_yielded);
#undef CACHE
	write_restores(e, s);
}

/* ---- lives ---- */

static void write_lives(struct exposition *e, const struct gpushm_metrics *m)
{
	static const char *const accesses[] = { "read", "write" };
	static const char *const roles[] = { "reader", "writer", "creator" };
	const uint64_t leases[] = { m->read_leases, m->write_leases };
	const uint64_t deaths[] = { m->reader_deaths, m->writer_deaths, m->creator_deaths };

	exposition_family(e, EXPOSITION_GAUGE, "gpushm_start_time_seconds", "seconds",
			  "When the daemon started, in seconds since 1970.");
	exposition_begin(e, "");
	exposition_seconds(e, m->started_ns);
	exposition_family(e, EXPOSITION_GAUGE, "gpushm_leases", NULL,
			  "Buffers that processes have open, each process and buffer once.");
	exposition_words(e, "", "access", accesses, leases, array_size(leases));
	GAUGE("gpushm_leases_away",
	      "Of these, suspended: their processes have unmapped the buffer.", m->away_leases);
	GAUGE("gpushm_processes_parked", "Processes that the driver has frozen.", m->parked);
	COUNTER("gpushm_evictions", "Buffers whose memory was given back.", m->evictions);
	GAUGE("gpushm_wanted_buffers",
	      "Buffers whose memory is needed, and whose processes are asked to suspend them.",
	      m->wanted);
	exposition_family(e, EXPOSITION_COUNTER, "gpushm_deaths", NULL,
			  "Processes that ended while they had buffers open: for reading, for "
			  "writing, or not published yet.");
	exposition_words(e, "_total", "role", roles, deaths, array_size(deaths));
	COUNTER("gpushm_restarts", "Daemons that took over from an earlier one.", m->restarts);
	COUNTER("gpushm_restored", "Buffers that these daemons found again.", m->restored);
	COUNTER("gpushm_lost", "Buffers that they did not find, or whose memory was gone.",
		m->lost);
}

/* ---- streams ---- */

static void write_stream_counts(struct exposition *e, const struct gpushm_stream_metrics *m)
{
	static const char *const states[] = { "running", "ended", "orphaned" };
	static const char *const follows[] = { "every", "latest", "share" };
	static const char *const roles[] = { "reader", "producer" };
	const uint64_t streams[] = { m->running, m->ended, m->orphaned };
	const uint64_t readers[] = { m->every, m->latest, m->share };
	const uint64_t deaths[] = { m->reader_deaths, m->producer_deaths };

	exposition_family(e, EXPOSITION_GAUGE, "gpushm_streams", NULL,
			  "Streams, by the state of their producer.");
	exposition_words(e, "", "state", states, streams, array_size(streams));
	exposition_family(e, EXPOSITION_GAUGE, "gpushm_streams_readers", NULL,
			  "Readers that have joined a stream, by how they follow it.");
	exposition_words(e, "", "follow", follows, readers, array_size(readers));
	exposition_family(e, EXPOSITION_COUNTER, "gpushm_streams_deaths", NULL,
			  "Processes that ended while they were readers or producers.");
	exposition_words(e, "_total", "role", roles, deaths, array_size(deaths));
}

static void write_streams(struct exposition *e, const struct gpushm_stream_metrics *m)
{
	if (!m)
		return;
	write_stream_counts(e, m);
	GAUGE("gpushm_streams_waiting",
	      "Producers that have waited for a reader for a second or longer.", m->waiting);
	COUNTER("gpushm_streams_frames", "Frames that were published.", m->frames);
	exposition_family(e, EXPOSITION_SUMMARY, "gpushm_streams_stall_seconds", "seconds",
			  "Time that producers have waited for readers.");
	write_summary(e, "stream", NULL, m->stalls, m->stalled_ns);
	COUNTER("gpushm_streams_dropped",
		"Readers that were dropped, because they held up their producer.", m->dropped);
	COUNTER("gpushm_streams_redone",
		"Frames of dead readers with share that other readers got.", m->redone);
	COUNTER("gpushm_streams_lost", "Frames of dead readers with share that nobody got.",
		m->lost);
}

/* ---- each stream ---- */

static void begin_stream(struct exposition *e, const char *suffix,
			 const struct gpushm_stream_info *s)
{
	char id[24];

	snprintf(id, sizeof(id), "%" PRIu64, s->buffer);
	exposition_begin(e, suffix);
	exposition_label(e, "stream", s->name[0] ? s->name : NULL);
	/* A name may be another stream's later, or have been one's that has lost it. */
	exposition_label(e, "id", id);
}

static uint64_t lag_of(const struct gpushm_stream_info *s)
{
	uint64_t most = 0;

	for (size_t i = 0; i < s->n_readers; i++)
		if (s->readers[i]->lag > most)
			most = s->readers[i]->lag;
	return most;
}

static uint64_t held_of(const struct gpushm_stream_info *s)
{
	uint64_t most = 0;

	for (size_t i = 0; i < s->n_readers; i++)
		if (s->readers[i]->held && s->readers[i]->oldest_ms > most)
			most = s->readers[i]->oldest_ms;
	return most < UINT64_MAX / 1000000 ? most * 1000000 : UINT64_MAX;
}

static void write_each_stream(struct exposition *e, const struct snapshot *s)
{
	size_t n = s->n_streams < SNAPSHOT_STREAMS_MAX ? s->n_streams : SNAPSHOT_STREAMS_MAX;

#define STREAMS(what, type, unit, suffix, help, write)                                           \
	EACH(n, type, "gpushm_stream_" what, unit, help, begin_stream(e, suffix, s->streams[i]), \
	     write)
	STREAMS("frames", EXPOSITION_COUNTER, NULL, "_total",
		"Frames that were published, over restarts.",
		exposition_number(e, s->streams[i]->newest));
	STREAMS("stalled_seconds", EXPOSITION_COUNTER, "seconds", "_total",
		"Time that the producer has waited for readers, over restarts.",
		exposition_seconds(e, s->streams[i]->stalled_ns));
	STREAMS("readers", EXPOSITION_GAUGE, NULL, "", "Readers that have joined.",
		exposition_number(e, s->streams[i]->n_readers));
	STREAMS("lag_frames", EXPOSITION_GAUGE, NULL, "",
		"Frames by which the slowest reader is behind.",
		exposition_number(e, lag_of(s->streams[i])));
	STREAMS("held_seconds", EXPOSITION_GAUGE, "seconds", "",
		"For how long a reader has held a frame, the longest.",
		exposition_seconds(e, held_of(s->streams[i])));
#undef STREAMS
}

/* ---- owners ---- */

static void owner_labels(struct exposition *e, uid_t uid)
{
	const struct passwd *user = getpwuid(uid);
	char number[16];

	snprintf(number, sizeof(number), "%u", uid);
	exposition_begin(e, "");
	exposition_label(e, "uid", number);
	exposition_label(e, "user", user ? user->pw_name : NULL);
}

static void write_owners(struct exposition *e, const struct gpushm_status *s)
{
#define OWNERS(what, unit, help, member)                                     \
	EACH(s->n_usage, EXPOSITION_GAUGE, "gpushm_owner_" what, unit, help, \
	     owner_labels(e, s->usage[i]->uid), exposition_number(e, s->usage[i]->member))
	OWNERS("bytes", "bytes", "Memory of a user's buffers.", bytes);
	OWNERS("buffers", NULL, "A user's buffers.", buffers);
	OWNERS("leases", NULL, "Buffers that a user's processes have open.", leases);
	OWNERS("peers", NULL, "A user's connections.", peers);
#undef OWNERS
}

void snapshot_write(const struct snapshot *s, struct exposition *e, unsigned by)
{
	GAUGE("gpushm_up", "1 if the daemon replies.", s->status != NULL);
	if (s->status) {
		write_daemon(e, s->status);
		write_refusals(e, s->status);
		write_pools(e, s);
		write_buffers(e, s);
		write_cache(e, s);
		write_requests(e, s->metrics);
		write_times(e, s->metrics);
		write_driver_calls(e, s->metrics);
		write_lives(e, s->metrics);
		write_streams(e, s->metrics->streams);
	}
	if (s->status && by & SNAPSHOT_BY_STREAM)
		write_each_stream(e, s);
	if (s->status && by & SNAPSHOT_BY_OWNER)
		write_owners(e, s->status);
	exposition_end(e);
}
