/* SPDX-License-Identifier: MIT */
#include "client/python/core/connection.h"
#include "client/python/core/module.h"

static PyTypeObject *call_type; /* owned */

struct call *call_new(PyObject *self, PyObject *name)
{
	struct connection *c = connection_of(self);
	struct call *call;

	if (c && c->closed)
		return (void *)PyErr_Format(PyExc_ValueError, "the connection is closed");
	call = c ? object_new(call_type) : NULL;
	if (!call)
		return NULL;
	call->connection = (struct connection *)Py_NewRef((PyObject *)c);
	call->name = Py_NewRef(name);
	if (connection_take_spare(c, &call->c) == 0)
		return call;
	Py_DECREF((PyObject *)call);
	return NULL;
}

PyObject *call_sent(struct call *self, int r)
{
	if (r == 0)
		return (PyObject *)self;
	error_raise(r);
	Py_DECREF((PyObject *)self);
	return NULL;
}

uint64_t call_wait_ms(const struct deadline *d)
{
	uint64_t ms = deadline_left(d);

	return ms > 0 ? ms : 1;
}

/* ---- waiting for names ---- */

PyObject *Connection_send_wait(PyObject *self, PyObject *args)
{
	struct deadline d = { 0 };
	const char *name;
	struct call *call;
	PyObject *o;
	int r;

	if (!PyArg_ParseTuple(args, "OO&:wait_async", &o, deadline_arg, &d) ||
	    args_text(o, "name", &name) < 0)
		return NULL;
	call = call_new(self, o);
	if (!call)
		return NULL;
	WITHOUT_GIL(r = gpushm_send_wait(call->c, name, call_wait_ms(&d), &call->call));
	return call_sent(call, r);
}

/* ---- the type ---- */

static PyObject *Call_process(PyObject *o, PyObject *unused)
{
	struct call *self = (struct call *)o;
	int r;

	WITHOUT_GIL(r = gpushm_call_process(self->call));
	self->done = r != GPUSHM_PENDING;
	if (r < 0)
		return error_raise(r);
	if (!self->done)
		Py_RETURN_NONE;
	return self->finish ? self->finish(self, gpushm_call_buffer(self->call))
			    : Py_NewRef(Py_True);
}

static PyObject *Call_fileno(PyObject *o, PyObject *unused)
{
	int fd = gpushm_call_fd(((struct call *)o)->call);

	return fd < 0 ? error_raise(fd) : PyLong_FromLong(fd);
}

/* Without a result the connection ends, too: what is still to come goes back to the daemon. */
static void end(struct call *self)
{
	struct gpushm_call *call = take_ptr(self->call);
	struct gpushm *c = take_ptr(self->c);

	if (!c)
		return;
	Py_BEGIN_ALLOW_THREADS
	gpushm_call_free(call);
	if (!self->done)
		gpushm_disconnect(c);
	Py_END_ALLOW_THREADS
	if (self->done)
		connection_put_spare(self->connection, c);
}

static PyObject *Call_close(PyObject *o, PyObject *unused)
{
	end((struct call *)o);
	Py_RETURN_NONE;
}

static int traverse(PyObject *o, visitproc visit, void *arg)
{
	Py_VISIT((PyObject *)Py_TYPE(o));
	Py_VISIT(((struct call *)o)->name);
	Py_VISIT(((struct call *)o)->how);
	return 0;
}

static int clear(PyObject *o)
{
	Py_CLEAR(((struct call *)o)->name);
	Py_CLEAR(((struct call *)o)->how);
	return 0;
}

static void dealloc(PyObject *o)
{
	PyObject_GC_UnTrack(o);
	end((struct call *)o);
	clear(o);
	Py_XDECREF((PyObject *)((struct call *)o)->connection);
	object_free(o);
}

static PyType_Slot slots[] = { SLOTS_Call,
			       { Py_tp_dealloc, dealloc },
			       { Py_tp_traverse, traverse },
			       { Py_tp_clear, clear },
			       { 0, NULL } };

struct type_row call_row = {
	TYPE_SPEC("gpushm._core._Call", struct call, Py_TPFLAGS_HAVE_GC, slots), &call_type, NULL
};
