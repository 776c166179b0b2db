/* SPDX-License-Identifier: MIT
 *
 * CUDA graphs that take frames: nodes are added while a stream captures, and get the values of a
 * frame before each launch. The nodes are the captured CUgraph's, and end with it: the program
 * keeps it, and libraries that would destroy it are refused by gpushm._libraries.
 */
#include "client/python/core/frame.h"
#include "client/python/core/module.h"

static PyTypeObject *graph_type; /* owned, for as long as the process lives */

struct graph {
	OBJECT_HEAD
	struct side *side;		  /* a reference */
	struct gpushm_graph_frame *frame; /* owned; NULL: closed */
	bool ends;			  /* the graph has the frame's end */
	unsigned calls;			  /* that use the frame and run without the GIL */
};

static bool is_open(const struct graph *self)
{
	if (self->frame)
		return side_stream(self->side) != NULL;
	PyErr_SetString(PyExc_ValueError, "the graph frame is closed");
	return false;
}

/* Between the two neither it nor its side can be closed. */
static void hold(struct graph *self)
{
	self->calls++;
	self->side->calls++;
}

static void let_go(struct graph *self)
{
	self->calls--;
	self->side->calls--;
}

/* ---- while a stream captures ---- */

static int acquire(struct graph *self, void *capturing, uint64_t where)
{
	struct gpushm_stream *s = side_stream(self->side);
	int r;

	if (!s)
		return -1;
	hold(self);
	/* This registers the stream's words, for which the driver may wait for a GPU. */
	WITHOUT_GIL(r = gpushm_graph_acquire(s, capturing, (void *)(uintptr_t)where, &self->frame));
	let_go(self);
	return error_result(r);
}

PyObject *Side_graph(PyObject *side, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
	_cleanup_(drop_object) PyObject *made = NULL;
	PyObject *given[2] = { 0 };
	struct stream capturing;
	uint64_t where = 0;
	struct graph *self;

	if (args_take(&ARGS_Side_graph, args, n, keywords, given) < 0 ||
	    stream_from(given[0], &capturing) < 0 || (given[1] && !u64_arg(given[1], &where)))
		return NULL;
	made = object_new(graph_type);
	if (!made)
		return NULL;
	self = (struct graph *)made;
	self->side = (struct side *)Py_NewRef(side);
	return acquire(self, capturing.handle, where) < 0 ? NULL : take_ptr(made);
}

static PyObject *GraphFrame_release(PyObject *o, PyObject *stream)
{
	struct graph *self = (struct graph *)o;
	struct stream capturing;
	int r;

	if (stream_from(stream, &capturing) < 0 || !is_open(self))
		return NULL;
	if (self->ends)
		return error_format(ERROR_STATE, EALREADY,
				    "stream \"%U\": the graph has the frame's end already",
				    self->side->name);
	self->ends = true;
	hold(self);
	WITHOUT_GIL(r = gpushm_graph_release(self->frame, capturing.handle));
	let_go(self);
	self->ends = r == 0;
	return object_none(r);
}

static PyObject *GraphFrame_offset(PyObject *o, PyObject *array)
{
	struct graph *self = (struct graph *)o;
	const char *name;
	uint64_t bytes;
	int r;

	if (args_text(array, "an array's name", &name) < 0 || !is_open(self))
		return NULL;
	r = gpushm_graph_offset(side_stream(self->side), name, &bytes);
	if (r == -ENOENT)
		PyErr_SetObject(PyExc_KeyError, array);
	return r < 0 ? error_raise(r) : PyLong_FromUnsignedLongLong(bytes);
}

/* ---- before each launch ---- */

static int exec_from(PyObject *o, void **ret)
{
	_cleanup_(drop_object) PyObject *number =
		PyIndex_Check(o) ? PyNumber_Index(o)
				 : object_call(types.libraries_module, "graph_exec", "(O)", o);

	*ret = number ? PyLong_AsVoidPtr(number) : NULL;
	return PyErr_Occurred() ? -1 : 0;
}

struct launch {
	struct gpushm_graph_frame *frame;
	void *exec;
};

static int take_frame(struct gpushm_stream *unused, void *launch, uint64_t timeout_ms,
		      struct gpushm_frame **ret)
{
	const struct launch *l = launch;

	return gpushm_graph_next(l->frame, l->exec, timeout_ms, ret);
}

static PyObject *GraphFrame_next(PyObject *o, PyObject *const *args, Py_ssize_t n,
				 PyObject *keywords)
{
	struct graph *self = (struct graph *)o;
	PyObject *given[2] = { NULL, self->side->timeout };
	struct launch l = { .frame = self->frame };
	struct gpushm_frame *f = NULL;
	struct deadline d;
	int r;

	if (args_take(&ARGS_GraphFrame_next, args, n, keywords, given) < 0 ||
	    !deadline_arg(given[1], &d) || exec_from(given[0], &l.exec) < 0 || !is_open(self))
		return NULL;
	if (!self->ends)
		return error_format(
			ERROR_STATE, EBUSY,
			"stream \"%U\": the graph does not end the frame: call release() "
			"of the graph frame while the stream captures",
			self->side->name);
	self->calls++;
	r = side_take(self->side, take_frame, &l, &d, &f);
	self->calls--;
	return r < 0 ? side_raise(r) : (PyObject *)pyframe_new(self->side, f, NULL, NULL);
}

/* ---- the end ---- */

static PyObject *GraphFrame_close(PyObject *o, PyObject *unused)
{
	struct graph *self = (struct graph *)o;

	if (self->calls > 0)
		return error_format(ERROR_IN_USE, EBUSY,
				    "the graph frame can't be closed while another thread uses it");
	self->frame = gpushm_graph_free(self->frame);
	Py_RETURN_NONE;
}

static int traverse(PyObject *o, visitproc visit, void *arg)
{
	struct graph *self = (struct graph *)o;

	Py_VISIT(Py_TYPE(o));
	Py_VISIT((PyObject *)self->side);
	return 0;
}

static void dealloc(PyObject *o)
{
	struct graph *self = (struct graph *)o;

	PyObject_GC_UnTrack(o);
	PyObject_ClearWeakRefs(o);
	gpushm_graph_free(self->frame);
	Py_XDECREF((PyObject *)self->side);
	object_free(self);
}

/* ---- the type ---- */

GETTER(GraphFrame_closed, struct graph, PyBool_FromLong(!self->frame))

static PyObject *repr(PyObject *o)
{
	struct graph *self = (struct graph *)o;

	return PyUnicode_FromFormat("<gpushm.types.GraphFrame of %R%s>", self->side->name,
				    self->frame ? "" : ", closed");
}

static PyType_Slot slots[] = {
	SLOTS_GraphFrame,     { Py_tp_dealloc, dealloc },	 { Py_tp_traverse, traverse },
	{ Py_tp_repr, repr }, { Py_tp_members, object_members }, { 0, NULL }
};

struct type_row graph_row = { TYPE_SPEC("gpushm.types.GraphFrame", struct graph, Py_TPFLAGS_HAVE_GC,
					slots),
			      &graph_type, NULL };
