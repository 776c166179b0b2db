/* SPDX-License-Identifier: MIT
 *
 * Requests that open nothing: about a name (wait, unlink, rename, clean), about the daemon's pools
 * (flush), and for information (ls, stat, pools, status), which becomes named tuples.
 */
#include "client/python/core/args.h"
#include "client/python/core/connection.h"
#include "client/python/core/module.h"
#include "client/python/core/record.h"

/* One request of any kind; fields of other kinds stay zero. */
struct query {
	struct ask ask;
	int (*call)(struct gpushm *c, const char *name); /* of run_call() */
	const char *name; /* of a buffer or a pool, or a prefix; NULL */
	const char *to;	  /* of run_rename() */
	uint32_t flags;
	struct gpushm_stat **stats, *stat;
	struct gpushm_pool **pools;
	struct gpushm_status *status;
	struct gpushm_stream_info **streams;
	size_t n;
};

static void query_done(struct query *q)
{
	gpushm_free(q->stats);
	gpushm_free(q->stat);
	gpushm_free(q->status);
	gpushm_free(q->streams);
	gpushm_free(q->pools);
}

static int send_query(PyObject *self, struct query *q)
{
	struct connection *c = connection_of(self);

	return c ? connection_ask(c, &q->ask) : -1;
}

/* ---- names and pools ---- */

static int run_call(struct gpushm *c, struct ask *ask)
{
	struct query *q = container_of(ask, struct query, ask);

	return q->call(c, q->name);
}

/* `format` is that of the only argument, a str. */
static PyObject *call_with(PyObject *self, PyObject *args, const char *format,
			   int (*call)(struct gpushm *c, const char *name))
{
	struct query q = { .ask.run = run_call, .call = call };

	return PyArg_ParseTuple(args, format, &q.name) ? object_none(send_query(self, &q)) : NULL;
}

static PyObject *unlink_name(PyObject *self, PyObject *args)
{
	return call_with(self, args, "s:unlink", gpushm_unlink);
}

static PyObject *clean_name(PyObject *self, PyObject *args)
{
	return call_with(self, args, "s:clean", gpushm_clean);
}

static int run_rename(struct gpushm *c, struct ask *ask)
{
	struct query *q = container_of(ask, struct query, ask);

	return gpushm_rename(c, q->name, q->to, q->flags);
}

static PyObject *rename_buffer(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "", "", "replace", NULL };
	struct query q = { .ask.run = run_rename };
	int replace = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss|$p:rename", (char **)names, &q.name,
					 &q.to, &replace))
		return NULL;
	q.flags = replace ? GPUSHM_REPLACE : 0;
	return object_none(send_query(self, &q));
}

static PyObject *flush(PyObject *self, PyObject *args)
{
	return call_with(self, args, "|z:flush", gpushm_flush);
}

static int wait_once(struct gpushm *c, const char *name)
{
	return gpushm_wait(c, name, 0);
}

static PyObject *wait_name(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name", "timeout", NULL };
	struct query q = { .ask.run = run_call, .call = wait_once };
	struct deadline d = { .forever = true };
	struct connection *c;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O&:wait", (char **)names, &q.name,
					 deadline_arg, &d))
		return NULL;
	c = connection_of(self);
	r = c ? connection_try(c, &q.ask) : -ECONNRESET;
	if ((r == -ENOENT || r == -EAGAIN) && deadline_waits(&d))
		r = connection_try_wait(c, q.name, &d);
	return object_none(r);
}

/* ---- information ---- */

static int run_list(struct gpushm *c, struct ask *ask)
{
	struct query *q = container_of(ask, struct query, ask);

	return gpushm_list(c, q->name, q->flags, &q->stats, &q->n);
}

static int run_stat(struct gpushm *c, struct ask *ask)
{
	struct query *q = container_of(ask, struct query, ask);

	return gpushm_stat(c, q->name, 0, q->flags, &q->stat);
}

static int run_pools(struct gpushm *c, struct ask *ask)
{
	struct query *q = container_of(ask, struct query, ask);

	return gpushm_pools(c, &q->pools, &q->n);
}

static int run_status(struct gpushm *c, struct ask *ask)
{
	return gpushm_status(c, &container_of(ask, struct query, ask)->status);
}

static int run_streams(struct gpushm *c, struct ask *ask)
{
	struct query *q = container_of(ask, struct query, ask);

	return gpushm_streams(c, q->name, &q->streams, &q->n);
}

static PyObject *ls(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "prefix", "holders", NULL };
	_cleanup_(query_done) struct query q = { .ask.run = run_list };
	int holders = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z$p:ls", (char **)names, &q.name,
					 &holders))
		return NULL;
	q.flags = holders ? GPUSHM_HOLDERS : 0;
	return send_query(self, &q) < 0 ? NULL : record_stats(q.stats, q.n);
}

static PyObject *stat_name(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name", "holders", NULL };
	_cleanup_(query_done) struct query q = { .ask.run = run_stat };
	int holders = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|$p:stat", (char **)names, &q.name,
					 &holders))
		return NULL;
	q.flags = holders ? GPUSHM_HOLDERS : 0;
	return send_query(self, &q) < 0 ? NULL : record_stat(q.stat);
}

static PyObject *pools(PyObject *self, PyObject *unused)
{
	_cleanup_(query_done) struct query q = { .ask.run = run_pools };

	return send_query(self, &q) < 0 ? NULL : record_pools(q.pools, q.n);
}

static PyObject *status(PyObject *self, PyObject *unused)
{
	_cleanup_(query_done) struct query q = { .ask.run = run_status };

	return send_query(self, &q) < 0 ? NULL : record_status(q.status);
}

static PyObject *streams(PyObject *self, PyObject *args)
{
	_cleanup_(query_done) struct query q = { .ask.run = run_streams };

	if (!PyArg_ParseTuple(args, "|z:streams", &q.name))
		return NULL;
	return send_query(self, &q) < 0 ? NULL : record_streams(q.streams, q.n);
}

PyMethodDef query_functions[] = {
	{ "unlink", unlink_name, METH_VARARGS,
	  "unlink($self, name, /)\n--\n\n"
	  "Frees the name at once, and the memory when no process has it open any more. For\n"
	  "the owner and admins. Asks the daemon. Errors: NotFound, AccessDenied, DaemonGone." },
	{ "rename", KEYWORDS(rename_buffer), METH_VARARGS | METH_KEYWORDS,
	  "rename($self, name, new, /, *, replace=False)\n--\n\n"
	  "Gives a published buffer another name, in one step. replace: that may be another\n"
	  "buffer's, which loses it in the same step; processes that have it open keep it. For\n"
	  "the owner and admins. Asks the daemon. Errors: NotFound, Exists, NotPublished,\n"
	  "AccessDenied, BadArgument, DaemonGone." },
	{ "clean", clean_name, METH_VARARGS,
	  "clean($self, name, /)\n--\n\n"
	  "Declares a dirty buffer's contents good again, and wakes processes that wait for\n"
	  "it. For the owner and admins. Asks the daemon. Errors: NotFound, AccessDenied,\n"
	  "DaemonGone." },
	{ "flush", flush, METH_VARARGS,
	  "flush($self, pool=None, /)\n--\n\n"
	  "Returns a pool's freed memory, which waits for reuse, to the driver; None: that of\n"
	  "every pool in which this user may create. Waits for the driver. Errors:\n"
	  "NotFound, AccessDenied." },
	{ "wait", KEYWORDS(wait_name), METH_VARARGS | METH_KEYWORDS,
	  "wait($self, name, timeout=None)\n--\n\n"
	  "Waits until the name is published, without attaching: at most that many seconds,\n"
	  "None for ever. Other threads run meanwhile, and Ctrl-C works. Errors:\n"
	  "Timeout, NotFound or NotPublished (timeout 0), DaemonGone." },
	{ "ls", KEYWORDS(ls), METH_VARARGS | METH_KEYWORDS,
	  "ls($self, prefix=None, *, holders=False)\n--\n\n"
	  "A list of BufferInfo: the buffers that this user may see and whose names start\n"
	  "with the prefix. holders: also the processes that have each open, for its owner\n"
	  "and admins. Asks the daemon." },
	{ "streams", streams, METH_VARARGS,
	  "streams($self, prefix=None, /)\n--\n\n"
	  "A list of StreamInfo: the streams that this user may see and whose names start with\n"
	  "the prefix, with their readers. Asks the daemon." },
	{ "stat", KEYWORDS(stat_name), METH_VARARGS | METH_KEYWORDS,
	  "stat($self, name, *, holders=False)\n--\n\n"
	  "The BufferInfo of one buffer, with its attributes. Asks the daemon. Errors:\n"
	  "NotFound, NotPublished, AccessDenied." },
	{ "pools", pools, METH_NOARGS,
	  "pools($self, /)\n--\n\n"
	  "A list of PoolInfo: the pools of memory. Asks the daemon." },
	{ "status", status, METH_NOARGS,
	  "status($self, /)\n--\n\n"
	  "The daemon's Status, with this user's Usage. Asks the daemon." },
	{ NULL, NULL, 0, NULL }
};
