/* SPDX-License-Identifier: MIT
 *
 * The life of a side: it joins, takes frames, and is closed by close(), by the end of its with
 * block, with its last reference, or by the package when the program ends. So a program that ends
 * in an orderly way ends its streams; only a process that is killed leaves one without a producer.
 *
 * A frame has a reference to its side. A side that is closed earlier ends its frames.
 */
#include "client/python/core/side.h"

#include "client/python/core/record.h"

PyTypeObject *side_type; /* owned, for as long as the process lives */

static struct list all = { &all, &all }; /* side::link */

void *side_new(PyTypeObject *type, struct connection *c, PyObject *name, PyObject *timeout)
{
	struct side *self = object_new(type);

	if (!self)
		return NULL;
	list_insert(all.next, &self->link);
	self->connection = (struct connection *)Py_NewRef((PyObject *)c);
	self->name = Py_NewRef(name);
	self->timeout = Py_NewRef(timeout);
	return self;
}

int side_join(struct side *self, struct gpushm_stream *s, uint32_t flags)
{
	struct buffer *b = pybuffer_new(self->connection, gpushm_stream_buffer(s), self->name, s);

	b = buffer_hinted(b, flags);
	if (!b)
		return -1;
	if (self->closed || self->buffer) {
		/* Another thread was faster, or closed the side meanwhile. */
		Py_DECREF((PyObject *)b);
		return self->closed ? error_python(PyExc_ValueError, "the stream is closed") : 0;
	}
	self->buffer = b;
	return 0;
}

struct gpushm_stream *side_stream(const struct side *self)
{
	if (self->buffer)
		return self->buffer->stream;
	PyErr_SetString(PyExc_ValueError,
			self->closed ? "the stream is closed" : "it has not joined the stream yet");
	return NULL;
}

int side_begin(struct side *self)
{
	if (self->busy)
		return error_refuse(
			ERROR_IN_USE, EBUSY,
			"another thread takes or publishes a frame of stream \"%U\": give each "
			"thread a Reader of its own, or use a lock",
			self->name);
	self->busy = true;
	self->calls++;
	return 0;
}

void side_end(struct side *self)
{
	self->busy = false;
	self->calls--;
}

/* ---- taking ---- */

int side_take(struct side *self, side_take_fn *take, void *where, const struct deadline *d,
	      struct gpushm_frame **ret)
{
	struct gpushm_stream *s = side_stream(self);
	uint64_t turn = deadline_turn(d);
	bool told = false;
	int r;

	if (!s || side_begin(self) < 0)
		return -EINTR;
	for (;;) {
		WITHOUT_GIL(r = take(s, where, turn, ret));
		turn = deadline_turn(d);
		if (r == -EOWNERDEAD && self->patient && !told) {
			told = true;
			continue;
		}
		if (r != -ETIMEDOUT || turn == 0)
			break;
		if (PyErr_CheckSignals() < 0) {
			r = -EINTR;
			break;
		}
	}
	side_end(self);
	return r;
}

void *side_raise(int r)
{
	switch (r) {
	case -EAGAIN:
		return error_raise_as(ERROR_TIMEOUT, r);
	case -ESTALE:
		return error_raise_as(ERROR_DROPPED, r);
	default:
		return error_raise(r);
	}
}

/* ---- the end ---- */

/* Leaves the stream: its frames end, and their arrays are closed. InUse: a thread uses the side. */
static int side_close(struct side *self)
{
	struct buffer *b;
	int r;

	if (self->calls > 0)
		return error_refuse(ERROR_IN_USE, EBUSY,
				    "stream \"%U\" can't be closed while %u %s it", self->name,
				    self->calls,
				    self->calls == 1 ? "thread or task uses"
						     : "threads or tasks use");
	self->closed = true;
	b = take_ptr(self->buffer);
	if (!b)
		return 0;
	r = buffer_end_stream(b);
	Py_DECREF((PyObject *)b);
	return r;
}

/* For destructors and the end of the program. */
static void close_quietly(struct side *self)
{
	KEEP_RAISED;

	side_close(self);
}

int side_traverse(PyObject *o, visitproc visit, void *arg)
{
	struct side *self = (struct side *)o;

	Py_VISIT(Py_TYPE(o));
	Py_VISIT((PyObject *)self->buffer);
	Py_VISIT((PyObject *)self->connection);
	Py_VISIT(self->name);
	Py_VISIT(self->timeout);
	return 0;
}

int side_clear(PyObject *o)
{
	object_to_none(&((struct side *)o)->timeout);
	return 0;
}

void side_dealloc(PyObject *o)
{
	struct side *self = (struct side *)o;

	PyObject_GC_UnTrack(o);
	PyObject_ClearWeakRefs(o);
	close_quietly(self);
	list_drop(&self->link);
	Py_XDECREF((PyObject *)self->connection);
	Py_XDECREF(self->name);
	Py_XDECREF(self->timeout);
	object_free(self);
}

PyObject *module_close_streams(PyObject *module, PyObject *unused)
{
	_cleanup_(drop_object) PyObject *list = PyList_New(0);
	struct side *s;

	list_foreach (s, &all, link)
		if (list && Py_REFCNT((PyObject *)s) > 0)
			object_append(&list, Py_NewRef((PyObject *)s));
	for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++)
		close_quietly((struct side *)PyList_GetItem(list, i));
	return list ? Py_NewRef(Py_None) : NULL;
}

/* ---- the type ---- */

GETTER(Side_name, struct side, Py_NewRef(self->name))
GETTER(Side_connection, struct side, Py_NewRef((PyObject *)self->connection))
GETTER(Side_closed, struct side, PyBool_FromLong(self->closed))
GETTER(Side_buffer, struct side, side_stream(self) ? Py_NewRef((PyObject *)self->buffer) : NULL)

static PyObject *Side_slots(PyObject *o, void *unused)
{
	struct gpushm_stream *s = side_stream((struct side *)o);

	return s ? PyLong_FromUnsignedLong(gpushm_stream_slots(s)) : NULL;
}

static PyObject *Side_stats(PyObject *o, PyObject *unused)
{
	struct gpushm_stream *s = side_stream((struct side *)o);
	struct gpushm_stream_stats found = { .struct_size = sizeof(found) };
	int r = s ? gpushm_stream_stats(s, &found) : 0;

	if (!s || r < 0)
		return r < 0 ? error_raise(r) : NULL;
	return record_one(record_stream_stats, &found);
}

static PyObject *Side_fileno(PyObject *o, PyObject *unused)
{
	struct gpushm_stream *s = side_stream((struct side *)o);
	int fd = s ? gpushm_stream_fd(s) : -1;

	if (!s || fd < 0)
		return s ? error_raise(fd) : NULL;
	return PyLong_FromLong(fd);
}

static PyObject *Side_close(PyObject *o, PyObject *unused)
{
	return object_none(side_close((struct side *)o));
}

/* A Reader may join later. */
static PyObject *Side_enter(PyObject *o, PyObject *unused)
{
	struct side *self = (struct side *)o;

	return self->closed && !side_stream(self) ? NULL : Py_NewRef(o);
}

static PyObject *Side_hold(PyObject *o, PyObject *unused)
{
	((struct side *)o)->calls++;
	Py_RETURN_NONE;
}

static PyObject *Side_release(PyObject *o, PyObject *unused)
{
	((struct side *)o)->calls--;
	Py_RETURN_NONE;
}

static PyType_Slot slots[] = { SLOTS_Side,
			       { Py_tp_dealloc, side_dealloc },
			       { Py_tp_traverse, side_traverse },
			       { Py_tp_clear, side_clear },
			       { Py_tp_members, object_members },
			       { 0, NULL } };

struct type_row side_row = { TYPE_SPEC("gpushm._core._Side", struct side,
				       Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots),
			     &side_type, NULL };
