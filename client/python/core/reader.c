/* SPDX-License-Identifier: MIT
 *
 * follow(), and gpushm.types.Reader, a reader's side of a stream: an iterator of frames for `for`
 * and `async for`. A Reader joins when it is made. Where the name is not there yet and an event
 * loop runs in this thread, `async with` and `async for` join.
 *
 * The Reader's loop keeps as many frames as it may hold. Before it takes one more it releases the
 * oldest, unless the program has said that it releases that one itself.
 */
#include "client/python/core/frame.h"
#include "client/python/core/module.h"

struct reader {
	struct side side;
	enum gpushm_follow follow;
	uint32_t max_held;
	PyObject *stream; /* as it was given; a reference */
	struct gpushm_follow_options options;
};

static PyTypeObject *reader_type; /* owned, for as long as the process lives */

/* ---- joining ---- */

struct follow_ask {
	struct ask ask;
	const struct reader *reader;
	const char *name;
	struct gpushm_stream *ret;
};

static int run_follow(struct gpushm *c, struct ask *ask)
{
	struct follow_ask *a = container_of(ask, struct follow_ask, ask);
	const struct reader *r = a->reader;

	return gpushm_stream_open(c, a->name, r->follow, r->max_held, ask->timeout_ms, &r->options,
				  &a->ret);
}

/* Joins if it has not yet. Returns 0 or -errno, which may be raised already. */
static int join(struct reader *self, const struct deadline *d)
{
	struct follow_ask a = { .ask.run = run_follow, .reader = self };
	int r;

	if (self->side.buffer)
		return 0;
	if (self->side.closed) {
		side_stream(&self->side);
		return -EINVAL;
	}
	if (args_text(self->side.name, "name", &a.name) < 0)
		return -EINVAL;
	self->side.calls++;
	r = connection_try_when(self->side.connection, &a.ask, a.name, d);
	self->side.calls--;
	if (r < 0)
		return r;
	return side_join(&self->side, a.ret, self->options.flags) < 0 ? -EINVAL : 0;
}

/* ---- frames ---- */

/* Releases the oldest frames of the loop until one more may be held. */
static int make_room(struct reader *self)
{
	struct frame *oldest;
	struct slot *s;
	uint32_t held;

	do {
		held = 0;
		oldest = NULL;
		list_foreach (s, &self->side.buffer->slots, link) {
			struct frame *f = container_of(s, struct frame, slot);

			held++;
			if (!oldest && !f->kept)
				oldest = f;
		}
		if (held < self->max_held || !oldest)
			return 0;
	} while (frame_release(oldest) == 0);
	return -1;
}

/* *ret_r: what was not raised; NULL without it. */
static PyObject *next_frame(struct reader *self, PyObject *stream, const struct deadline *d,
			    int *ret_r)
{
	struct gpushm_frame *f = NULL;
	struct stream on;
	int r;

	*ret_r = 0;
	if (stream_from(stream, &on) < 0)
		return NULL;
	r = join(self, d);
	if (r == 0 && make_room(self) < 0)
		return NULL;
	if (r == 0)
		r = side_take(&self->side, gpushm_frame_next, stream_where(&on), d, &f);
	if (r == 0)
		return (PyObject *)pyframe_new(&self->side, f, &on, stream);
	*ret_r = r;
	return NULL;
}

static PyObject *Reader_next(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
	struct reader *self = (struct reader *)o;
	PyObject *given[2] = { self->side.timeout, self->stream }, *found;
	struct deadline d;
	int r;

	if (args_take(&ARGS_Reader_next, args, n, keywords, given) < 0 ||
	    !deadline_arg(given[0], &d))
		return NULL;
	found = next_frame(self, given[1], &d, &r);
	return r < 0 ? side_raise(r) : found;
}

/* The end of the stream ends the loop. */
static PyObject *iternext(PyObject *o)
{
	struct reader *self = (struct reader *)o;
	struct deadline d;
	PyObject *found;
	int r;

	if (!deadline_arg(self->side.timeout, &d))
		return NULL;
	found = next_frame(self, self->stream, &d, &r);
	if (r < 0 && r != -EPIPE)
		side_raise(r);
	return found;
}

/* ---- asyncio ---- */

static PyObject *anext(PyObject *o)
{
	return object_call(types.asyncio_module, "next_frame", "(OO)", o,
			   ((struct side *)o)->timeout);
}

static PyObject *Reader_take_now(PyObject *o, PyObject *unused)
{
	struct reader *self = (struct reader *)o;
	PyObject *found;
	int r;

	found = next_frame(self, self->stream, &(struct deadline){ 0 }, &r);
	if (r == -EAGAIN || r == -ETIMEDOUT || (r == -ENOENT && !self->side.buffer))
		Py_RETURN_NONE;
	return r < 0 ? side_raise(r) : found;
}

static PyObject *Reader_join_now(PyObject *o, PyObject *unused)
{
	int r = join((struct reader *)o, &(struct deadline){ 0 });

	if (r == -ENOENT || r == -EAGAIN)
		Py_RETURN_FALSE;
	return r < 0 ? error_raise(r) : Py_NewRef(Py_True);
}

GETTER(Reader_joined, struct side, PyBool_FromLong(self->buffer != NULL))
GETTER(Reader_timeout, struct side, Py_NewRef(self->timeout))

/* ---- follow() ---- */

/* Waits unless an event loop runs in this thread. */
static PyObject *join_first(struct reader *self, const struct deadline *d)
{
	struct deadline at_once = { 0 };
	_cleanup_(drop_object) PyObject *looping = NULL;
	int r = join(self, &at_once);

	if ((r == -ENOENT || r == -EAGAIN) && deadline_waits(d)) {
		looping = object_call(types.asyncio_module, "is_running", "()");
		if (looping == Py_True)
			return (PyObject *)self;
		r = looping ? join(self, d) : -EINVAL;
	}
	if (r == 0)
		return (PyObject *)self;
	Py_DECREF((PyObject *)self);
	return error_raise(r);
}

PyObject *Connection_follow(PyObject *self, PyObject *args)
{
	struct connection *c = connection_of(self);
	PyObject *name, *stream, *timeout, *device;
	struct options options = { 0 };
	int follow, patient;
	uint32_t max_held;
	uint64_t spin_us;
	const char *text;
	struct deadline d;
	struct stream on;
	struct reader *r;

	if (!PyArg_ParseTuple(args, "OiO&OOpOK:follow", &name, &follow, u32_arg, &max_held, &stream,
			      &timeout, &patient, &device, &spin_us) ||
	    args_text(name, "name", &text) < 0 || stream_from(stream, &on) < 0 ||
	    !deadline_arg(timeout, &d) || options_device(device, &options) < 0)
		return NULL;
	r = c ? side_new(reader_type, c, name, timeout) : NULL;
	if (!r)
		return NULL;
	r->follow = (enum gpushm_follow)follow;
	r->max_held = max_held;
	r->side.patient = patient;
	r->stream = Py_NewRef(stream);
	r->options = (struct gpushm_follow_options){ sizeof(r->options), options.opening.flags,
						     options.opening.device, spin_us };
	return join_first(r, &d);
}

/* ---- the type ---- */

static PyObject *repr(PyObject *o)
{
	struct side *self = (struct side *)o;
	static const char *const words[] = { "", "every frame", "the latest frame",
					     "a share of the frames" };

	return PyUnicode_FromFormat("<gpushm.types.Reader of %s of %R%s>",
				    words[((struct reader *)o)->follow], self->name,
				    self->closed ? ", closed" : "");
}

static int traverse(PyObject *o, visitproc visit, void *arg)
{
	Py_VISIT(((struct reader *)o)->stream);
	return side_traverse(o, visit, arg);
}

static int clear(PyObject *o)
{
	object_to_none(&((struct reader *)o)->stream);
	return side_clear(o);
}

static void dealloc(PyObject *o)
{
	PyObject_GC_UnTrack(o);
	Py_CLEAR(((struct reader *)o)->stream);
	side_dealloc(o);
}

static PyType_Slot slots[] = { SLOTS_Reader,
			       { Py_tp_dealloc, dealloc },
			       { Py_tp_traverse, traverse },
			       { Py_tp_clear, clear },
			       { Py_tp_repr, repr },
			       { Py_tp_iter, PyObject_SelfIter },
			       { Py_tp_iternext, iternext },
			       { Py_am_aiter, PyObject_SelfIter },
			       { Py_am_anext, anext },
			       { 0, NULL } };
struct type_row reader_row = { TYPE_SPEC("gpushm.types.Reader", struct reader, Py_TPFLAGS_HAVE_GC,
					 slots),
			       &reader_type, &side_type };
