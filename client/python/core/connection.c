/* SPDX-License-Identifier: MIT
 *
 * Links to the daemon and who may use which. A link does one request at a time, so a thread that
 * waits for a name does it on one of its own; what is opened lives on the common link, and a link
 * that was waited on is kept for the next who waits.
 *
 * A link that a thread uses without the GIL may be given up by another one meanwhile: it is
 * counted, and ends with its last user. A link whose daemon has gone is given up by whoever finds
 * out, and the next request makes a new one; the buffers of the old one stay as they are.
 */
#include "client/python/core/connection.h"

#include "client/python/core/error.h"

/* The process's common connection; owned. */
static struct connection *common;

/* ---- links ---- */

/* Lets other threads run: what it was taken from may have another one when this returns. */
static void link_unref(struct link *l)
{
	struct gpushm *c;

	if (!l || --l->refs > 0)
		return;
	c = l->c;
	PyMem_Free(l);
	/* It may wait for a GPU: closes that were put off are done with their connection. */
	Py_BEGIN_ALLOW_THREADS
	gpushm_disconnect(c);
	Py_END_ALLOW_THREADS
}

static struct link *link_ref(struct link *l)
{
	l->refs++;
	return l;
}

/* NULL: raised. */
static struct link *link_new(const char *path)
{
	struct link *l = PyMem_Calloc(1, sizeof(*l));
	int r;

	if (!l)
		return (struct link *)PyErr_NoMemory();
	l->refs = 1;
	Py_BEGIN_ALLOW_THREADS
	r = gpushm_connect(path, &l->c);
	Py_END_ALLOW_THREADS
	if (r == 0)
		return l;
	/* Here ENOENT means that there is no socket. */
	if (r == -ENOENT)
		error_raise_as(ERROR_DAEMON, r);
	else
		error_raise(r);
	PyMem_Free(l);
	return NULL;
}

static bool is_the_parents(const struct link *l)
{
	return gpushm_fd(l->c) == -ECHILD;
}

/* Gives up *l, if it is still that one. */
static void give_up(struct link **l, const struct link *gone)
{
	if (*l == gone)
		link_unref(take_ptr(*l));
}

/* The link for requests that are answered at once; a new reference. NULL: raised. */
static struct link *connected(struct connection *self)
{
	struct link *fresh;

	if (self->closed) {
		PyErr_SetString(PyExc_ValueError, "the connection is closed");
		return NULL;
	}
	if (self->link && self->common && is_the_parents(self->link))
		give_up(&self->link, self->link);
	if (self->link)
		return link_ref(self->link);
	fresh = link_new(self->path);
	/* Another thread may have been faster, or have closed it; this request has its own then. */
	if (fresh && !self->link && !self->closed)
		self->link = link_ref(fresh);
	return fresh;
}

/* A link to wait on; the caller's. NULL: raised. */
static struct link *take_idle(struct connection *self)
{
	struct link *l = take_ptr(self->idle);

	if (!l || !is_the_parents(l))
		return l ? l : link_new(self->path);
	link_unref(l);
	return link_new(self->path);
}

static void put_idle(struct connection *self, struct link *l, int r)
{
	if (self->idle || self->closed || r == -ECONNRESET)
		link_unref(l);
	else
		self->idle = l;
}

/* ---- asking ---- */

static int run(struct link *l, struct ask *a)
{
	int r;

	Py_BEGIN_ALLOW_THREADS
	r = a->run(l->c, a);
	Py_END_ALLOW_THREADS
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
		if (r != -ECONNRESET) {
			link_unref(l);
			return r;
		}
		give_up(&self->link, l);
		if (!again)
			error_raise(r);
		link_unref(l);
		if (!again)
			return r;
	}
}

int connection_ask(struct connection *self, struct ask *a)
{
	int r = connection_try(self, a);

	if (r < 0)
		error_raise(r);
	return r < 0 ? -1 : 0;
}

/* In turns until it is answered otherwise than by the end of a turn. */
static int run_in_turns(struct link *l, struct ask *a, const struct deadline *d)
{
	int r = -ETIMEDOUT;

	for (;;) {
		a->timeout_ms = deadline_turn(d);
		/* The time may have run out since it was looked at; 0 would be another question. */
		a->timeout_ms += a->timeout_ms == 0;
		r = run(l, a);
		/* A create that waited for room says that there is none. */
		if ((r != -ETIMEDOUT && r != -ENOSPC) || deadline_turn(d) == 0)
			return r;
		if (PyErr_CheckSignals() < 0)
			return -EINTR;
	}
}

int connection_try_apart(struct connection *self, struct ask *a, const struct deadline *d)
{
	struct link *l = link_new(self->path);
	int r;

	if (!l)
		return -ECONNRESET;
	r = run_in_turns(l, a, d);
	if (r < 0)
		error_raise(r);
	link_unref(l);
	return r;
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
	struct link *l = take_idle(self);
	int r;

	if (!l)
		return -ECONNRESET;
	r = run_in_turns(l, &a.ask, d);
	if (r < 0)
		error_raise(r);
	put_idle(self, l, r);
	return r;
}

/* ---- the type ---- */

static struct connection *connection_new(PyTypeObject *type, const char *path)
{
	struct connection *self = object_new(type);

	if (!self)
		return NULL;
	if (path) {
		self->path = PyMem_Malloc(strlen(path) + 1);
		if (!self->path) {
			Py_DECREF(self);
			return (struct connection *)PyErr_NoMemory();
		}
		strcpy(self->path, path);
	}
	return self;
}

struct connection *connection_of(PyObject *self)
{
	if (PyObject_TypeCheck(self, types.connection))
		return (struct connection *)Py_NewRef(self);
	if (!common) {
		common = connection_new(types.connection, NULL);
		if (common)
			common->common = true;
	}
	return (struct connection *)Py_XNewRef((PyObject *)common);
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
	/* Connects now, so that a wrong path is told here. */
	l = connected(self);
	if (!l) {
		Py_DECREF(self);
		return NULL;
	}
	link_unref(l);
	return (PyObject *)self;
}

static PyObject *connection_close(PyObject *o, PyObject *unused)
{
	struct connection *self = (struct connection *)o;

	self->closed = !self->common;
	link_unref(take_ptr(self->link));
	link_unref(take_ptr(self->idle));
	Py_RETURN_NONE;
}

PyObject *connection_end_common(PyObject *module, PyObject *unused)
{
	if (!common)
		Py_RETURN_NONE;
	return connection_close((PyObject *)common, NULL);
}

static PyObject *connection_enter(PyObject *o, PyObject *unused)
{
	return Py_NewRef(o);
}

static PyObject *connection_exit(PyObject *o, PyObject *args)
{
	return connection_close(o, NULL);
}

static PyObject *connection_fileno(PyObject *o, PyObject *unused)
{
	struct link *l = connected((struct connection *)o);
	int fd;

	if (!l)
		return NULL;
	fd = gpushm_fd(l->c);
	if (fd < 0)
		error_raise(fd);
	link_unref(l);
	return fd < 0 ? NULL : PyLong_FromLong(fd);
}

static PyObject *get_closed(PyObject *o, void *unused)
{
	return PyBool_FromLong(((struct connection *)o)->closed);
}

static void dealloc(PyObject *o)
{
	struct connection *self = (struct connection *)o;

	PyObject_ClearWeakRefs(o);
	link_unref(take_ptr(self->link));
	link_unref(take_ptr(self->idle));
	PyMem_Free(self->path);
	object_free(self);
}

static PyMethodDef methods[] = {
	{ "close", connection_close, METH_NOARGS,
	  "close($self, /)\n--\n\n"
	  "Ends the connection. Buffers that were opened through it stay open, and keep it\n"
	  "alive." },
	{ "fileno", connection_fileno, METH_NOARGS,
	  "fileno($self, /)\n--\n\n"
	  "The socket, for poll(): readable while no call is under way means that the daemon\n"
	  "has gone." },
	{ "__enter__", connection_enter, METH_NOARGS, NULL },
	{ "__exit__", connection_exit, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL }
};

static PyGetSetDef getters[] = { { "closed", get_closed, NULL, "Whether close() was called.",
				   NULL },
				 { NULL, NULL, NULL, NULL, NULL } };
static PyMemberDef members[] = {
	{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct connection, weakrefs), READONLY, NULL },
	{ "socket", T_STRING, offsetof(struct connection, path), READONLY,
	  "The path that was given; None: found by the rule of gpushm_connect()." },
	{ NULL, 0, 0, 0, NULL }
};
static PyType_Slot slots[] = {
	{ Py_tp_doc,
	  (void *)"Connection(socket=None)\n--\n\n"
		  "A connection to the daemon that listens at that path; None: at $GPUSHM_SOCKET,\n"
		  "/run/gpushm/gpushmd.sock or $XDG_RUNTIME_DIR/gpushm/gpushmd.sock, the first "
		  "that\n"
		  "is there.\n\n"
		  "It has what the module has as functions: create(), open(), ls() and the "
		  "others,\n"
		  "which use a connection of the process's own. Any thread may use it; one that "
		  "waits\n"
		  "keeps no other waiting. When the daemon has gone the next call connects anew.\n"
		  "Errors: DaemonGone, AccessDenied." },
	{ Py_tp_new, type_new },
	{ Py_tp_dealloc, dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, getters },
	{ Py_tp_members, members },
	{ 0, NULL }
};
static PyType_Spec spec = { .name = "gpushm.Connection",
			    .basicsize = sizeof(struct connection),
			    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
			    .slots = slots };

int connection_init(PyObject *module, PyMethodDef *const *verbs)
{
	types.connection = types_add(module, &spec);
	if (!types.connection)
		return -1;
	for (; *verbs; verbs++) {
		for (PyMethodDef *verb = *verbs; verb->ml_name; verb++) {
			_cleanup_(drop_object) PyObject *method =
				PyDescr_NewMethod(types.connection, verb);

			if (!method || PyObject_SetAttrString((PyObject *)types.connection,
							      verb->ml_name, method) < 0)
				return -1;
		}
	}
	return 0;
}
