/* SPDX-License-Identifier: MIT
 *
 * ls(), stat(), pools(), status(): each asks, makes Python's objects of the answer, and frees it.
 */
#include "client/python/core/look.h"

#include "client/python/core/connection.h"
#include "client/python/core/error.h"
#include "client/python/core/record.h"

/* One question of any of the four; what is not its own stays zero. */
struct look_ask {
	struct ask ask;
	const char *name; /* or prefix; NULL */
	uint32_t flags;
	struct gpushm_stat *stats;
	struct gpushm_pool *pools;
	struct gpushm_status *status;
	size_t n;
};

static void look_done(struct look_ask *a)
{
	gpushm_stat_free(a->stats, a->n);
	gpushm_status_free(a->status);
	free(a->pools);
}

static int run_list(struct gpushm *c, struct ask *ask)
{
	struct look_ask *a = container_of(ask, struct look_ask, ask);

	return gpushm_list(c, a->name, a->flags, &a->stats, &a->n);
}

static int run_stat(struct gpushm *c, struct ask *ask)
{
	struct look_ask *a = container_of(ask, struct look_ask, ask);
	int r = gpushm_stat(c, a->name, 0, a->flags, &a->stats);

	a->n = r == 0;
	return r;
}

static int run_pools(struct gpushm *c, struct ask *ask)
{
	struct look_ask *a = container_of(ask, struct look_ask, ask);

	return gpushm_pools(c, &a->pools, &a->n);
}

static int run_status(struct gpushm *c, struct ask *ask)
{
	return gpushm_status(c, &container_of(ask, struct look_ask, ask)->status);
}

/* 0; -1: raised. */
static int look(PyObject *self, struct look_ask *a)
{
	struct connection *c = connection_of(self);
	int r = c ? connection_ask(c, &a->ask) : -1;

	Py_XDECREF((PyObject *)c);
	return r;
}

static PyObject *ls(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "prefix", "holders", NULL };
	_cleanup_(look_done) struct look_ask a = { .ask.run = run_list };
	_cleanup_(drop_object) PyObject *list = NULL;
	int holders = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z$p:ls", (char **)names, &a.name,
					 &holders))
		return NULL;
	a.flags = holders ? GPUSHM_HOLDERS : 0;
	if (look(self, &a) < 0)
		return NULL;
	list = PyList_New(0);
	for (size_t i = 0; list && i < a.n; i++) {
		_cleanup_(drop_object) PyObject *one = record_stat(&a.stats[i]);

		if (!one || PyList_Append(list, one) < 0)
			return NULL;
	}
	return take_ptr(list);
}

static PyObject *stat_name(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name", "holders", NULL };
	_cleanup_(look_done) struct look_ask a = { .ask.run = run_stat };
	int holders = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|$p:stat", (char **)names, &a.name,
					 &holders))
		return NULL;
	a.flags = holders ? GPUSHM_HOLDERS : 0;
	return look(self, &a) < 0 ? NULL : record_stat(a.stats);
}

static PyObject *pools(PyObject *self, PyObject *unused)
{
	_cleanup_(look_done) struct look_ask a = { .ask.run = run_pools };
	_cleanup_(drop_object) PyObject *list = NULL;

	if (look(self, &a) < 0)
		return NULL;
	list = PyList_New(0);
	for (size_t i = 0; list && i < a.n; i++) {
		_cleanup_(drop_object) PyObject *one = record_pool(&a.pools[i]);

		if (!one || PyList_Append(list, one) < 0)
			return NULL;
	}
	return take_ptr(list);
}

static PyObject *status(PyObject *self, PyObject *unused)
{
	_cleanup_(look_done) struct look_ask a = { .ask.run = run_status };

	return look(self, &a) < 0 ? NULL : record_status(a.status);
}

PyMethodDef look_verbs[] = {
	{ "ls", (PyCFunction)(void (*)(void))ls, METH_VARARGS | METH_KEYWORDS,
	  "ls($self, prefix=None, *, holders=False)\n--\n\n"
	  "A list of BufferInfo: the buffers that this user may see, whose names start so.\n"
	  "holders: who has each open, for its owner and admins. Asks the daemon." },
	{ "stat", (PyCFunction)(void (*)(void))stat_name, METH_VARARGS | METH_KEYWORDS,
	  "stat($self, name, *, holders=False)\n--\n\n"
	  "The BufferInfo of one buffer, with its attributes. Asks the daemon. Errors:\n"
	  "NotFound, NotPublished, AccessDenied." },
	{ "pools", pools, METH_NOARGS,
	  "pools($self, /)\n--\n\n"
	  "A list of PoolInfo: where memory can come from. Asks the daemon." },
	{ "status", status, METH_NOARGS,
	  "status($self, /)\n--\n\n"
	  "The daemon's Status, and what this user holds. Asks the daemon." },
	{ NULL, NULL, 0, NULL }
};

int look_init(PyObject *module)
{
	return record_init(module);
}
