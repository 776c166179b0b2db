/* SPDX-License-Identifier: MIT
 *
 * stream(), and gpushm.types.Stream, the producer's side of a stream.
 */
#include "client/python/core/frame.h"
#include "client/python/core/module.h"

static PyTypeObject *stream_type; /* owned, for as long as the process lives */

/* ---- stream() ---- */

struct stream_ask {
	struct ask ask;
	const char *name;
	struct gpushm_stream_spec spec;
	struct options *options;
	struct gpushm_stream *ret;
};

static int run_create(struct gpushm *c, struct ask *ask)
{
	struct stream_ask *a = container_of(ask, struct stream_ask, ask);

	a->options->o.wait_ms = ask->timeout_ms;
	return gpushm_stream_create(c, a->name, &a->spec, &a->options->o, &a->ret);
}

static PyObject *make(PyObject *self, PyObject *name, struct stream_ask *a)
{
	struct connection *c = connection_of(self);
	int r = c ? connection_try(c, &a->ask) : -ECONNRESET;
	struct side *side;

	/* The pool is full, or the producer before lives still. */
	if ((r == -ENOSPC || r == -EBUSY) && deadline_turn(&a->options->wait) > 0)
		r = connection_try_apart(c, &a->ask, &a->options->wait);
	if (r < 0)
		return error_raise(r);
	side = side_new(stream_type, c, name, Py_None);
	if (!side) {
		gpushm_stream_close(a->ret);
		return NULL;
	}
	side->fills = true;
	/* Who names a pool has chosen a GPU. */
	if (side_join(side, a->ret, a->options->o.pool ? GPUSHM_SET_DEVICE : a->options->o.flags) ==
	    0)
		return (PyObject *)side;
	Py_DECREF((PyObject *)side);
	return NULL;
}

PyObject *Connection_stream_new(PyObject *self, PyObject *args)
{
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(layouts_done) struct layouts layouts = { 0 };
	struct stream_ask a = { .ask.run = run_create,
				.spec.struct_size = sizeof(a.spec),
				.options = &options };
	struct gpushm_stream_spec *s = &a.spec;
	int adopt, keep, keep_queue;
	PyObject *name;

	if (!PyArg_ParseTuple(args, "OO&O&O&O&KipppK:stream", &name, layouts_arg, &layouts,
			      options_arg, &options, u32_arg, &s->slots, u32_arg, &s->readers,
			      &s->limit_ms, &s->delivery, &keep_queue, &adopt, &keep,
			      &s->spin_us) ||
	    args_text(name, "name", &a.name) < 0)
		return NULL;
	s->flags = (adopt ? GPUSHM_ADOPT : 0) | (keep ? GPUSHM_KEEP_STREAM : 0) |
		   (keep_queue ? GPUSHM_KEEP_QUEUE : 0);
	s->arrays = layouts.specs;
	s->n_arrays = layouts.n;
	return make(self, name, &a);
}

/* ---- frames ---- */

static PyObject *begin_frame(struct side *self, PyObject *stream, const struct deadline *d)
{
	struct gpushm_frame *f = NULL;
	struct stream on;
	int r;

	if (stream_from(stream, &on) < 0)
		return NULL;
	r = side_take(self, gpushm_frame_begin, stream_where(&on), d, &f);
	return r < 0 ? side_raise(r) : (PyObject *)pyframe_new(self, f, &on, stream);
}

static PyObject *Stream_frame(PyObject *o, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
	struct deadline d = { GPUSHM_WAIT_FOREVER };
	PyObject *given[2] = { 0 };

	if (args_take(&ARGS_Stream_frame, args, n, keywords, given) < 0 ||
	    (given[1] && !deadline_arg(given[1], &d)))
		return NULL;
	return begin_frame((struct side *)o, given[0], &d);
}

static PyObject *repr(PyObject *o)
{
	struct side *self = (struct side *)o;

	return PyUnicode_FromFormat("<gpushm.types.Stream %R%s>", self->name,
				    self->closed ? ", closed" : "");
}

static PyType_Slot slots[] = { SLOTS_Stream,
			       { Py_tp_dealloc, side_dealloc },
			       { Py_tp_traverse, side_traverse },
			       { Py_tp_clear, side_clear },
			       { Py_tp_repr, repr },
			       { 0, NULL } };
struct type_row producer_row = { TYPE_SPEC("gpushm.types.Stream", struct side, Py_TPFLAGS_HAVE_GC,
					   slots),
				 &stream_type, &side_type };
