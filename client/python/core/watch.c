/* SPDX-License-Identifier: MIT
 *
 * gpushm.types.Watch: changes of names and buffers as events, for threads, poll() and asyncio. A
 * watch owns a watch of libgpushm's, which has a connection of its own, so that waiting blocks no
 * other request. Several threads may wait on one watch; each event goes to one of them. A watched
 * buffer may be closed meanwhile.
 */
#include "client/python/core/args.h"
#include "client/python/core/buffer.h"
#include "client/python/core/module.h"
#include "client/python/core/record.h"

#include "client/gpushm_query.h"

struct watch {
	OBJECT_HEAD
	struct gpushm_watch *watch; /* owned; NULL: closed */
	unsigned calls; /* that run without the GIL, and tasks between _hold() and _release() */
};

static PyTypeObject *watch_type; /* owned */

static bool is_open(const struct watch *self)
{
	if (self->watch)
		return true;
	PyErr_SetString(PyExc_ValueError, "the watch is closed");
	return false;
}

/* ---- names and buffers ---- */

static PyObject *Watch_add(PyObject *o, PyObject *what)
{
	struct watch *self = (struct watch *)o;
	struct buffer *b = buffer_of(what);
	const char *name = NULL;

	if (!is_open(self) || (b && !buffer_is_open(b)))
		return NULL;
	if (!b && !PyUnicode_Check(what))
		return PyErr_Format(PyExc_TypeError,
				    "a name, an Array or a Buffer can be watched, not %R",
				    (PyObject *)Py_TYPE(what));
	if (!b && args_text(what, "name", &name) < 0)
		return NULL;
	return object_none(b ? gpushm_watch_buffer(self->watch, b->buffer)
			     : gpushm_watch_name(self->watch, name));
}

struct watch_ask {
	struct ask ask;
	struct gpushm_watch *ret;
};

static int run_new(struct gpushm *c, struct ask *ask)
{
	return gpushm_watch_new(c, &container_of(ask, struct watch_ask, ask)->ret);
}

PyObject *Connection_watch(PyObject *module, PyObject *args)
{
	struct watch_ask a = { .ask.run = run_new };
	struct connection *c = connection_of(module);
	struct watch *self;

	if (!c || error_result(connection_try(c, &a.ask)) < 0)
		return NULL;
	self = object_new(watch_type);
	if (!self) {
		gpushm_watch_free(a.ret);
		return NULL;
	}
	self->watch = a.ret;
	for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++) {
		if (object_done(Watch_add((PyObject *)self, PyTuple_GetItem(args, i))) < 0) {
			Py_DECREF((PyObject *)self);
			return NULL;
		}
	}
	return (PyObject *)self;
}

/* ---- events ---- */

static int wait_in_turns(struct watch *self, const struct deadline *d, struct gpushm_event *ret)
{
	uint64_t turn;
	int r;

	for (;;) {
		turn = deadline_turn(d);
		self->calls++;
		WITHOUT_GIL(r = gpushm_watch_next(self->watch, turn, ret));
		self->calls--;
		if (r != -ETIMEDOUT || turn == 0)
			return r;
		/* A signal handler may raise, or close the watch. */
		if (PyErr_CheckSignals() < 0 || !is_open(self))
			return -EINTR;
	}
}

static PyObject *take(struct watch *self, const struct deadline *d)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };
	int r;

	if (!is_open(self))
		return NULL;
	r = wait_in_turns(self, d, &e);
	/* error_raise() keeps what a signal handler has raised. */
	return r < 0 ? error_raise(r) : record_one(record_event, &e);
}

static PyObject *Watch_next(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct deadline d = { GPUSHM_WAIT_FOREVER };

	if (!args_parse(args, kwargs, Watch_next, "|O&:next", deadline_arg, &d))
		return NULL;
	return take((struct watch *)o, &d);
}

static PyObject *iternext(PyObject *o)
{
	return take((struct watch *)o, &(struct deadline){ GPUSHM_WAIT_FOREVER });
}

static PyObject *anext(PyObject *o)
{
	return object_call(types.asyncio_module, "next_event", "(O)", o);
}

/* ---- the rest ---- */

static PyObject *Watch_fileno(PyObject *o, PyObject *unused)
{
	struct watch *self = (struct watch *)o;
	int fd;

	if (!is_open(self))
		return NULL;
	fd = gpushm_watch_fd(self->watch);
	return fd < 0 ? error_raise(fd) : PyLong_FromLong(fd);
}

static PyObject *Watch_close(PyObject *o, PyObject *unused)
{
	struct watch *self = (struct watch *)o;

	if (self->calls > 0)
		return error_format(ERROR_IN_USE, EBUSY,
				    "the watch can't be closed while %u %s on it", self->calls,
				    self->calls == 1 ? "thread or task waits"
						     : "threads or tasks wait");
	self->watch = gpushm_watch_free(self->watch);
	Py_RETURN_NONE;
}

static PyObject *Watch_hold(PyObject *o, PyObject *unused)
{
	struct watch *self = (struct watch *)o;

	if (!is_open(self))
		return NULL;
	self->calls++;
	Py_RETURN_NONE;
}

static PyObject *Watch_release(PyObject *o, PyObject *unused)
{
	((struct watch *)o)->calls--;
	Py_RETURN_NONE;
}

static PyObject *Watch_enter(PyObject *o, PyObject *unused)
{
	return is_open((struct watch *)o) ? Py_NewRef(o) : NULL;
}

GETTER(Watch_closed, struct watch, PyBool_FromLong(!self->watch))

static void dealloc(PyObject *o)
{
	struct watch *self = (struct watch *)o;

	PyObject_ClearWeakRefs(o);
	gpushm_watch_free(self->watch);
	object_free(self);
}

static PyType_Slot slots[] = { SLOTS_Watch,
			       { Py_tp_dealloc, dealloc },
			       { Py_tp_members, object_members },
			       { Py_tp_iter, PyObject_SelfIter },
			       { Py_tp_iternext, iternext },
			       { Py_am_aiter, PyObject_SelfIter },
			       { Py_am_anext, anext },
			       { 0, NULL } };
struct type_row watch_row = { TYPE_SPEC("gpushm.types.Watch", struct watch, 0, slots), &watch_type,
			      NULL };
