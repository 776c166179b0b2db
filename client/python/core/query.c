/* SPDX-License-Identifier: MIT
 *
 * Requests that hand out nothing: about a name (wait, unlink, rename, clean, and what its memory
 * does), about the daemon's pools (flush), and for information (ls, stat, pools, status, events),
 * which becomes named tuples. gpushm._events makes an iterator of the last one.
 */
#include "client/python/core/args.h"
#include "client/python/core/connection.h"
#include "client/python/core/module.h"
#include "client/python/core/record.h"

#include "client/gpushm_events.h"
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"

struct query {
	struct ask ask;
	const struct kind *kind;
	const char *name; /* of a buffer or a pool, or a prefix; NULL */
	const char *to;	  /* of a rename, and a twin's pool */
	uint64_t keep_ms;
	int priority;
	uint32_t flags;
	union {
		void *any; /* owned; NULL */
		struct gpushm_stat **stats, *stat;
		struct gpushm_pool **pools;
		struct gpushm_status *status;
		struct gpushm_stream_info **streams;
	} found;
	size_t n; /* of a list */
};

/* ---- kinds ---- */

static int run_rename(struct gpushm *c, struct query *q)
{
	return gpushm_rename(c, q->name, q->to, q->flags);
}

static int run_make_twin(struct gpushm *c, struct query *q)
{
	return gpushm_make_twin(c, q->name, q->to);
}

static int run_set_keep(struct gpushm *c, struct query *q)
{
	return gpushm_set_keep(c, q->name, q->keep_ms, q->priority);
}

static int run_park(struct gpushm *c, struct query *q)
{
	return gpushm_park(c, q->priority, q->keep_ms, q->flags);
}

static int run_unpark(struct gpushm *c, struct query *q)
{
	return gpushm_unpark(c, q->priority, q->keep_ms, q->flags);
}

static int run_wait(struct gpushm *c, struct query *q)
{
	return gpushm_wait(c, q->name, 0);
}

static int run_list(struct gpushm *c, struct query *q)
{
	return gpushm_list(c, q->name, q->flags, &q->found.stats, &q->n);
}

static int run_stat(struct gpushm *c, struct query *q)
{
	return gpushm_stat(c, q->name, 0, q->flags, &q->found.stat);
}

static int run_pools(struct gpushm *c, struct query *q)
{
	return gpushm_pools(c, &q->found.pools, &q->n);
}

static int run_status(struct gpushm *c, struct query *q)
{
	return gpushm_status(c, &q->found.status);
}

static int run_streams(struct gpushm *c, struct query *q)
{
	return gpushm_streams(c, q->name, &q->found.streams, &q->n);
}

static const struct kind {
	const char *word;
	int (*run)(struct gpushm *c, struct query *q); /* NULL: of_name() */
	int (*of_name)(struct gpushm *c, const char *name);
	const struct record *const *found; /* NULL: nothing */
	bool lists;			   /* many of them */
	bool named;			   /* it needs a name */
	uint32_t flag;			   /* what its bool says */
} kinds[] = {
	{ "unlink", NULL, gpushm_unlink, NULL, false, true, 0 },
	{ "rename", run_rename, NULL, NULL, false, true, GPUSHM_REPLACE },
	{ "clean", NULL, gpushm_clean, NULL, false, true, 0 },
	{ "evict", NULL, gpushm_evict, NULL, false, true, 0 },
	{ "make_twin", run_make_twin, NULL, NULL, false, true, 0 },
	{ "set_keep", run_set_keep, NULL, NULL, false, true, 0 },
	{ "may_park", NULL, gpushm_may_park, NULL, false, false, 0 },
	{ "park", run_park, NULL, NULL, false, false, GPUSHM_KILL_STUCK },
	{ "unpark", run_unpark, NULL, NULL, false, false, GPUSHM_KILL_STUCK },
	{ "flush", NULL, gpushm_flush, NULL, false, false, 0 },
	{ "wait", run_wait, NULL, NULL, false, true, 0 },
	{ "ls", run_list, NULL, &record_stat, true, false, GPUSHM_HOLDERS },
	{ "stat", run_stat, NULL, &record_stat, false, true, GPUSHM_HOLDERS },
	{ "pools", run_pools, NULL, &record_pool, true, false, 0 },
	{ "status", run_status, NULL, &record_status, false, false, 0 },
	{ "streams", run_streams, NULL, &record_stream_info, true, false, 0 },
};

/* ---- the request ---- */

static int run(struct gpushm *c, struct ask *ask)
{
	struct query *q = container_of(ask, struct query, ask);

	return q->kind->run ? q->kind->run(c, q) : q->kind->of_name(c, q->name);
}

/* Waits for the name, if the query is one for that. */
static int send_query(PyObject *self, struct query *q, const struct deadline *d)
{
	struct connection *c = connection_of(self);
	int r = c ? connection_try(c, &q->ask) : -ECONNRESET;

	if ((r == -ENOENT || r == -EAGAIN) && deadline_waits(d))
		r = connection_try_wait(c, q->name, d);
	return error_result(r);
}

static PyObject *result_of(const struct query *q)
{
	if (!q->kind->found)
		Py_RETURN_NONE;
	return q->kind->lists ? record_list(*q->kind->found, q->found.any, q->n)
			      : record_one(*q->kind->found, q->found.any);
}

PyObject *Connection_query(PyObject *self, PyObject *args)
{
	struct query q = { .ask.run = run, .kind = kinds };
	PyObject *name = Py_None, *to = Py_None, *result;
	struct deadline d = { 0 };
	const char *word;
	int flag = 0;

	if (!PyArg_ParseTuple(args, "s|OpOO&Ki:_query", &word, &name, &flag, &to, deadline_arg, &d,
			      &q.keep_ms, &q.priority))
		return NULL;
	while (strcmp(q.kind->word, word) != 0)
		q.kind++;
	if (((name != Py_None || q.kind->named) && args_text(name, "name", &q.name) < 0) ||
	    (q.kind->run == run_rename && args_text(to, "the new name", &q.to) < 0) ||
	    (q.kind->run == run_make_twin && args_text(to, "pool", &q.to) < 0))
		return NULL;
	q.flags = flag ? q.kind->flag : 0;
	result = send_query(self, &q, &d) < 0 ? NULL : result_of(&q);
	gpushm_free(q.found.any);
	return result;
}

/* ---- events: it waits on a link of its own, so that other requests go on ---- */

struct events_ask {
	struct ask ask;
	struct gpushm_events_options options;
	uint64_t lost;
	struct gpushm_events *events; /* owned; NULL: the time is over */
};

/* What was lost before a turn that brought nothing is not forgotten. */
static int run_events(struct gpushm *c, struct ask *ask)
{
	struct events_ask *a = container_of(ask, struct events_ask, ask);
	int r;

	a->options.timeout_ms = ask->timeout_ms;
	r = gpushm_events(c, &a->options, &a->events);
	if (r < 0)
		return r;
	a->lost += a->events->lost;
	a->options.after = a->events->last;
	if (a->events->n_events > 0 || ask->timeout_ms == 0)
		return 0;
	a->events = gpushm_free(a->events);
	ask->is_over = true;
	return -ETIMEDOUT;
}

static PyObject *events_result(const struct events_ask *a)
{
	const struct gpushm_events *e = a->events;
	PyObject *list = record_list(record_logged_event, e ? (const void *const *)e->events : NULL,
				     e ? e->n_events : 0);

	return list ? Py_BuildValue("(NKK)", list, (unsigned long long)a->options.after,
				    (unsigned long long)a->lost)
		    : NULL;
}

PyObject *Connection_events(PyObject *self, PyObject *args)
{
	struct events_ask a = { .ask.run = run_events, .options.struct_size = sizeof(a.options) };
	struct deadline d = { 0 };
	unsigned long long after;
	struct connection *c;
	PyObject *ret;
	int r = -ECONNRESET;

	if (!PyArg_ParseTuple(args, "KzO&:_events", &after, &a.options.types, deadline_arg, &d))
		return NULL;
	a.options.after = after;
	c = connection_of(self);
	if (c)
		r = deadline_waits(&d) ? connection_try_idle(c, &a.ask, &d)
				       : connection_try(c, &a.ask);
	if (r < 0 && r != -ETIMEDOUT)
		return error_raise(r);
	ret = events_result(&a);
	gpushm_free(a.events);
	return ret;
}
