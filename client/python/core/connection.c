/* SPDX-License-Identifier: MIT
 *
 * Links to the daemon. A link does one request at a time, so a thread that waits for a name uses a
 * link of its own, which is kept for the next wait. Buffers are opened on the connection's link.
 *
 * While a thread uses a link without the GIL, another thread may give the link up: links are
 * counted, and the last user disconnects. A thread that finds a link's daemon gone gives it up, and
 * the next request makes a new one; buffers of the old link stay open.
 */
#include "client/python/core/connection.h"

#include "client/gpushm_memory.h"
#include "client/gpushm_private.h"
#include "client/gpushm_query.h"

#include <math.h>

#define SETTLE_MS 1000u

/* The process's common connection; owned. */
static struct connection *common;

/* ---- links ---- */

/* Lets other threads run. This may wait for a GPU: it does the connection's deferred closes. */
static struct gpushm *disconnect(struct gpushm *c)
{
	WITHOUT_GIL(gpushm_disconnect(c));
	return NULL;
}

/* The connection may have a new link when this returns. */
static void link_unref(struct link *l)
{
	struct gpushm *c;

	if (!l || --l->refs > 0)
		return;
	c = l->c;
	PyMem_Free(l);
	disconnect(c);
}

static struct link *link_ref(struct link *l)
{
	l->refs++;
	return l;
}

static struct link *link_new(const struct connection *self)
{
	struct link *l = PyMem_Calloc(1, sizeof(*l));
	int r;

	if (!l)
		return (struct link *)PyErr_NoMemory();
	l->refs = 1;
	WITHOUT_GIL(r = gpushm_connect(self->path, &l->c));
	if (r == 0) {
		if (self->has_timeout)
			gpushm_set_timeout(l->c, self->timeout_ms);
		return l;
	}
	/* From gpushm_connect() ENOENT means that there is no socket. */
	if (r == -ENOENT)
		error_raise_as(ERROR_DAEMON, r);
	else
		error_raise(r);
	PyMem_Free(l);
	return NULL;
}

/* Whether this is a forked child, and its parent made the link. */
static bool is_the_parents(const struct link *l)
{
	return gpushm_fd(l->c) == -ECHILD;
}

/* Gives up *l if it is still the link that has gone. */
static void give_up(struct link **l, const struct link *gone)
{
	if (*l == gone)
		link_unref(take_ptr(*l));
}

/* The link for requests that do not wait; a new reference. */
static struct link *connected(struct connection *self)
{
	struct link *fresh;

	if (self->closed)
		return (void *)PyErr_Format(PyExc_ValueError, "the connection is closed");
	if (self->link && self->common && is_the_parents(self->link))
		give_up(&self->link, self->link);
	if (self->link)
		return link_ref(self->link);
	fresh = link_new(self);
	/* If another thread was faster, or closed the connection, only this request uses the link.
	 */
	if (fresh && !self->link && !self->closed)
		self->link = link_ref(fresh);
	return fresh;
}

/* A link to wait on; the caller owns it. */
static struct link *take_idle(struct connection *self)
{
	struct link *l = take_ptr(self->idle);

	if (l && !is_the_parents(l))
		return l;
	link_unref(l);
	return link_new(self);
}

static void put_idle(struct connection *self, struct link *l, int r)
{
	if (self->idle || self->closed || r == -ECONNRESET)
		link_unref(l);
	else
		self->idle = l;
}

/* ---- requests ---- */

static int run(struct link *l, struct ask *a)
{
	int r;

	WITHOUT_GIL(r = a->run(l->c, a));
	if (r != -ECONNRESET)
		l->proven = true;
	return r;
}

int connection_try(struct connection *self, struct ask *a)
{
	for (;;) {
		struct link *l = connected(self);
		bool again;
		int r;

		if (!l)
			return -ECONNRESET;
		a->timeout_ms = 0;
		again = l->proven;
		r = run(l, a);
		again = again && r == -ECONNRESET;
		if (r == -ECONNRESET)
			give_up(&self->link, l);
		if (r == -ECONNRESET && !again)
			error_raise(r);
		link_unref(l);
		if (!again)
			return r;
	}
}

bool connection_is_turns_end(int r)
{
	const char *code = gpushm_error_code();

	return r == -ENOSPC || (r == -ETIMEDOUT && strcmp(code, "TIMED_OUT") == 0) ||
	       (r == -ENODATA && strcmp(code, "EVICTED") == 0);
}

static bool is_turns_end(const struct ask *a, int r)
{
	return connection_is_turns_end(r) || (r == -ETIMEDOUT && a->is_over);
}

/* Repeats the request in turns until a turn ends with another reply than its timeout. -EINTR: an
 * exception is set. */
static int run_in_turns(struct link *l, struct ask *a, const struct deadline *d)
{
	int r = -ETIMEDOUT;

	for (;;) {
		a->timeout_ms = deadline_turn(d);
		/* The time may be over by now, but a timeout of 0 is another request. */
		a->timeout_ms += a->timeout_ms == 0;
		r = run(l, a);
		if (!is_turns_end(a, r)) {
			error_result(r);
			return r == -ETIMEDOUT ? -EINTR : r;
		}
		if (deadline_turn(d) == 0)
			return r;
		if (PyErr_CheckSignals() < 0)
			return -EINTR;
	}
}

/* A buffer that was discarded is closed without a reply. Requests of other links must come after
 * that: a name that was to be loaded is free again when the error is raised. */
static void settle(struct link *l, int r)
{
	struct gpushm_status *status;

	if (r == -ECONNRESET)
		return;
	gpushm_set_timeout(l->c, SETTLE_MS);
	Py_BEGIN_ALLOW_THREADS
	if (gpushm_status(l->c, &status) == 0)
		gpushm_free(status);
	Py_END_ALLOW_THREADS
}

int connection_try_apart(struct connection *self, struct ask *a, const struct deadline *d)
{
	struct link *l = link_new(self);
	int r;

	if (!l)
		return -ECONNRESET;
	r = run_in_turns(l, a, d);
	if (r < 0) {
		error_raise(r);
		settle(l, r);
	}
	link_unref(l);
	return r;
}

int connection_try_idle(struct connection *self, struct ask *a, const struct deadline *d)
{
	struct link *l = take_idle(self);
	int r;

	if (!l)
		return -ECONNRESET;
	r = run_in_turns(l, a, d);
	if (r < 0 && r != -ETIMEDOUT)
		error_raise(r);
	put_idle(self, l, r);
	return r;
}

int connection_take_spare(struct connection *self, struct gpushm **ret)
{
	struct gpushm *spare = take_ptr(self->spare);
	int r = 0;

	if (spare && !gpushm_private_is_idle(spare))
		spare = disconnect(spare);
	if (!spare)
		r = gpushm_private_connect_later(self->path, self->link ? self->link->c : NULL,
						 &spare);
	if (r == 0 && self->has_timeout)
		gpushm_set_timeout(spare, self->timeout_ms);
	*ret = spare;
	return error_result(r);
}

void connection_put_spare(struct connection *self, struct gpushm *c)
{
	struct gpushm *before = self->spare;

	if (self->closed || (before && gpushm_private_is_idle(before))) {
		disconnect(c);
		return;
	}
	self->spare = c;
	disconnect(before);
}

struct wait_ask {
	struct ask ask;
	const char *name;
};

static int run_wait(struct gpushm *c, struct ask *a)
{
	return gpushm_wait(c, container_of(a, struct wait_ask, ask)->name, a->timeout_ms);
}

int connection_try_wait(struct connection *self, const char *name, const struct deadline *d)
{
	struct wait_ask a = { .ask.run = run_wait, .name = name };
	int r = connection_try_idle(self, &a.ask, d);

	if (r == -ETIMEDOUT)
		error_raise(r);
	return r;
}

int connection_try_when(struct connection *self, struct ask *a, const char *name,
			const struct deadline *d)
{
	int r = connection_try(self, a);

	while ((r == -ENOENT || r == -EAGAIN) && deadline_waits(d)) {
		r = connection_try_wait(self, name, d);
		if (r == 0)
			r = connection_try(self, a);
	}
	return r;
}

/* ---- the type ---- */

static struct connection *connection_new(PyTypeObject *type, const char *path)
{
	struct connection *self = object_new(type);

	if (!self)
		return NULL;
	self->path = path ? strdup(path) : NULL;
	if (self->path || !path)
		return self;
	Py_DECREF(self);
	return (struct connection *)PyErr_NoMemory();
}

struct connection *connection_of(PyObject *self)
{
	if (PyObject_TypeCheck(self, types.connection))
		return (struct connection *)self;
	if (!common) {
		common = connection_new(types.connection, NULL);
		if (common)
			common->common = true;
	}
	return common;
}

static PyObject *type_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const words[] = { "socket", NULL };
	_cleanup_(drop_object) PyObject *path = NULL;
	PyObject *given = Py_None;
	struct connection *self;
	struct link *l;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Connection", (char **)words, &given))
		return NULL;
	if (given != Py_None && !PyUnicode_FSConverter(given, &path))
		return NULL;
	self = connection_new(type, path ? PyBytes_AsString(path) : NULL);
	if (!self)
		return NULL;
	/* Connects now, so that a wrong path raises here. */
	l = connected(self);
	if (!l) {
		Py_DECREF(self);
		return NULL;
	}
	link_unref(l);
	return (PyObject *)self;
}

static PyObject *Connection_close(PyObject *o, PyObject *unused)
{
	struct connection *self = (struct connection *)o;

	self->closed = !self->common;
	link_unref(take_ptr(self->link));
	link_unref(take_ptr(self->idle));
	disconnect(take_ptr(self->spare));
	Py_RETURN_NONE;
}

PyObject *module_disconnect(PyObject *module, PyObject *unused)
{
	if (!common)
		Py_RETURN_NONE;
	return Connection_close((PyObject *)common, NULL);
}

static PyObject *fd_of(PyObject *o, bool wanted)
{
	struct link *l = connected((struct connection *)o);
	int fd;

	if (!l)
		return NULL;
	WITHOUT_GIL(fd = wanted ? gpushm_wanted_fd(l->c) : gpushm_fd(l->c));
	if (fd < 0)
		error_raise(fd);
	link_unref(l);
	return fd < 0 ? NULL : PyLong_FromLong(fd);
}

static PyObject *Connection_fileno(PyObject *o, PyObject *unused)
{
	return fd_of(o, false);
}

static PyObject *Connection_wanted_fd(PyObject *o, PyObject *unused)
{
	return fd_of(o, true);
}

PyObject *Connection_set_timeout(PyObject *o, PyObject *seconds)
{
	struct connection *self = connection_of(o);
	double s = seconds == Py_None ? 0 : PyFloat_AsDouble(seconds);

	if (!self || (s == -1.0 && PyErr_Occurred()))
		return NULL;
	if (seconds != Py_None && !(s > 0))
		return (void *)PyErr_Format(
			PyExc_ValueError,
			"a timeout is a positive number of seconds, or None for no limit");
	self->has_timeout = true;
	self->timeout_ms = s * 1000 >= (double)INT64_MAX ? 0 : (uint64_t)ceil(s * 1000);
	if (self->link)
		gpushm_set_timeout(self->link->c, self->timeout_ms);
	if (self->idle)
		gpushm_set_timeout(self->idle->c, self->timeout_ms);
	Py_RETURN_NONE;
}

static void dealloc(PyObject *o)
{
	struct connection *self = (struct connection *)o;

	PyObject_ClearWeakRefs(o);
	link_unref(take_ptr(self->link));
	link_unref(take_ptr(self->idle));
	disconnect(take_ptr(self->spare));
	free(self->path);
	object_free(self);
}

GETTER(Connection_closed, struct connection, PyBool_FromLong(self->closed))
GETTER(Connection_socket, struct connection, object_text(self->path))

static PyType_Slot slots[] = { SLOTS_Connection,
			       { Py_tp_new, type_new },
			       { Py_tp_dealloc, dealloc },
			       { Py_tp_members, object_members },
			       { 0, NULL } };
struct type_row connection_row = { { "gpushm.types.Connection", sizeof(struct connection), 0,
				     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots },
				   &types.connection,
				   NULL };
