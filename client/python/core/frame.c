/* SPDX-License-Identifier: MIT
 *
 * The life of a frame, and the type gpushm.types.Frame. A frame is finished once: published,
 * released or cancelled, by its method, by the end of its with block, by its reader's loop, by its
 * side's end, or with its last reference; Arrays, tensors and memoryviews of it have one. That
 * closes its Arrays. Tensors and memoryviews cannot be closed: they stay, over memory that is
 * another frame's soon.
 *
 * CUDA: a consumer of an Array on another stream than the frame's is ordered behind the frame's by
 * slot::order, and so is the end of the frame behind copies on other streams.
 */
#include "client/python/core/frame.h"

#include "client/python/core/module.h"
#include "proto/base/cbor.h"
#include "proto/kind.h"

static PyTypeObject *frame_type; /* owned, for as long as the process lives */

/* ---- the 64 bytes of a frame that are its user's ---- */

/* The bytes of a value that is no dict; a new reference. */
static PyObject *bytes_from(PyObject *value)
{
	PyObject *bytes;
	Py_buffer view;

	if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			error_python(PyExc_TypeError,
				     "a frame's meta is a dict, bytes or None, not %R",
				     (PyObject *)Py_TYPE(value));
		return NULL;
	}
	bytes = PyBytes_FromStringAndSize(view.buf, view.len);
	PyBuffer_Release(&view);
	return bytes;
}

static bool is_cbor(PyObject *bytes)
{
	return cbor_begins(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
}

/* value: bytes and the like, or a dict of str to what CBOR has words for; None or NULL: nothing.
 * shapes: a dict of an array's index to a tuple; NULL: each array has the slot's shape. Bytes are
 * passed on as they are; gpushm._meta makes CBOR of a dict, of shapes, and of bytes that begin as
 * our CBOR does. Raises TypeError, or BadArgument where it does not fit. */
static int meta_encode(PyObject *value, PyObject *shapes, struct meta *ret)
{
	_cleanup_(drop_object) PyObject *own = NULL, *bytes = NULL;
	bool is_none = !value || value == Py_None;

	ret->n = 0;
	if (is_none && !shapes)
		return 0;
	own = is_none		    ? Py_NewRef(Py_None)
	      : PyDict_Check(value) ? Py_NewRef(value)
				    : bytes_from(value);
	if (!own)
		return -1;
	bytes = PyBytes_Check(own) && !shapes && !is_cbor(own)
			? Py_NewRef(own)
			: object_call(types.meta_module, "encode", "(OO)", own,
				      shapes ? shapes : Py_None);
	if (!bytes)
		return -1;
	ret->n = (size_t)PyBytes_Size(bytes);
	if (ret->n <= sizeof(ret->bytes)) {
		memcpy(ret->bytes, PyBytes_AsString(bytes), ret->n);
		return 0;
	}
	return error_refuse(
		ERROR_ARGUMENT, EINVAL,
		"the frame's meta%s needs %zu bytes, and a frame has %d: use shorter keys, or "
		"put it into an array of the stream",
		shapes ? ", with the shapes of its arrays," : "", ret->n, GPUSHM_META_MAX);
}

/* *ret_value: a dict, or bytes; *ret_shapes: as above. Bytes that meta_encode() does not make are
 * returned as they are. */
static int meta_decode(const struct meta *m, PyObject **ret_value, PyObject **ret_shapes)
{
	_cleanup_(drop_object) PyObject *bytes =
		PyBytes_FromStringAndSize((const char *)m->bytes, (Py_ssize_t)m->n);
	_cleanup_(drop_object) PyObject *pair = NULL;

	*ret_shapes = NULL;
	if (bytes && is_cbor(bytes)) {
		pair = object_call(types.meta_module, "decode", "(O)", bytes);
		if (!pair && PyErr_ExceptionMatches(PyExc_MemoryError))
			return -1;
		/* Another process has written it, and it may be no CBOR that is known here. */
		PyErr_Clear();
	}
	if (!pair) {
		*ret_value = take_ptr(bytes);
		return *ret_value ? 0 : -1;
	}
	*ret_value = Py_NewRef(PyTuple_GetItem(pair, 0));
	if (PyTuple_GetItem(pair, 1) != Py_None)
		*ret_shapes = Py_NewRef(PyTuple_GetItem(pair, 1));
	return 0;
}

/* ---- the beginning ---- */

static void enter_slot(struct frame *self)
{
	const struct gpushm_buffer *b = self->side->buffer->buffer;
	uint64_t bytes = gpushm_buffer_bytes(b) / gpushm_stream_slots(self->side->buffer->stream);

	self->slot.owner = (PyObject *)self;
	self->slot.from = self->index * bytes;
	self->slot.to = self->slot.from + bytes;
	list_insert(&self->side->buffer->slots, &self->slot.link);
}

static void read_frame(struct frame *self)
{
	const struct gpushm_frame *f = self->slot.frame;
	const void *meta = gpushm_frame_meta(f, &self->meta.n);

	self->seq = gpushm_frame_seq(f);
	self->time_ns = gpushm_frame_time(f);
	self->skipped = gpushm_frame_skipped(f);
	self->index = gpushm_frame_slot(f);
	if (self->meta.n > sizeof(self->meta.bytes) || self->filling)
		self->meta.n = 0;
	memcpy(self->meta.bytes, meta, self->meta.n);
}

struct frame *pyframe_new(struct side *side, struct gpushm_frame *f, const struct stream *on,
			  PyObject *stream)
{
	struct frame *self = object_new(frame_type);

	if (!self) {
		gpushm_frame_cancel(f);
		return NULL;
	}
	self->slot.frame = f;
	self->side = (struct side *)Py_NewRef((PyObject *)side);
	self->in_graph = !on;
	/* For a frame in a graph libgpushm asks for some CUDA stream, and queues nothing. */
	self->on = on ? *on : (struct stream){ .given = true };
	self->on.object = self->stream = self->on.object ? Py_NewRef(stream) : NULL;
	self->filling = side->fills;
	read_frame(self);
	enter_slot(self);
	if (!on || !on->given || !kind_of(gpushm_buffer_kind(side->buffer->buffer))->by_driver ||
	    order_add(&self->slot.order, &self->on) == 0)
		return self;
	Py_DECREF((PyObject *)self);
	return NULL;
}

static bool is_open(const struct frame *self)
{
	if (self->slot.frame)
		return true;
	PyErr_Format(PyExc_ValueError, "frame %llu of stream \"%U\" is %s",
		     (unsigned long long)self->seq, self->side->name,
		     self->filling ? "published or cancelled" : "released");
	return false;
}

/* ---- the end ---- */

/* Waits for copies on other streams, and, where no stream is given, for work that libgpushm does
 * not know. May let other threads run. */
static int await_others(struct frame *self, const struct stream *on)
{
	if (on->given)
		return order_wait(&self->slot.order, on->handle ? on->handle : (void *)1);
	return object_done(
		object_call(types.libraries_module, "before_publish", "(O)", self->side->buffer));
}

static int release_on(struct frame *self, const struct stream *on)
{
	struct side *side = self->side;
	struct gpushm_frame *f;
	int r;

	if (await_others(self, on) < 0)
		return -1;
	if (!self->slot.frame)
		return 0;
	f = buffer_end_slot(side->buffer, &self->slot);
	side->calls++;
	WITHOUT_GIL(r = gpushm_frame_release(f, stream_where(on)));
	side->calls--;
	if (r == -EPIPE)
		error_raise_as(ERROR_PRODUCER, r);
	else if (r < 0)
		side_raise(r);
	return r < 0 ? -1 : 0;
}

/* A graph that was never launched does not end its frame. */
static const struct stream *unless_launched(const struct frame *self)
{
	static const struct stream host;

	return self->in_graph ? &host : &self->on;
}

int frame_release(struct frame *self)
{
	int r;

	if (!self->slot.frame)
		return 0;
	Py_INCREF((PyObject *)self);
	r = release_on(self, unless_launched(self));
	Py_DECREF((PyObject *)self);
	return r;
}

static int publish_or_drop(struct gpushm_frame *f, void *on, const struct meta *meta)
{
	int r = gpushm_frame_publish(f, on, meta->bytes, meta->n);

	if (r == -EINVAL)
		gpushm_frame_cancel(f);
	return r;
}

static int publish_on(struct frame *self, const struct stream *on)
{
	struct side *side = self->side;
	struct gpushm_frame *f;
	int r;

	/* Again, because a dict may have changed since it was set. */
	if (meta_encode(self->value, self->shapes, &self->meta) < 0 || await_others(self, on) < 0 ||
	    !is_open(self) || side_begin(side) < 0)
		return -1;
	f = buffer_end_slot(side->buffer, &self->slot);
	WITHOUT_GIL(r = publish_or_drop(f, stream_where(on), &self->meta));
	side_end(side);
	return error_result(r);
}

static int cancel_frame(struct frame *self)
{
	struct side *side = self->side;
	struct gpushm_frame *f;

	if (!self->slot.frame)
		return 0;
	if (side_begin(side) < 0)
		return -1;
	f = buffer_end_slot(side->buffer, &self->slot);
	WITHOUT_GIL(gpushm_frame_cancel(f));
	side_end(side);
	return 0;
}

/* For destructors, which cannot raise. */
static void finish_quietly(struct frame *self)
{
	KEEP_RAISED;
	struct gpushm_frame *f;

	if (self->slot.frame &&
	    (self->filling ? cancel_frame(self) : release_on(self, unless_launched(self))) < 0)
		PyErr_Clear();
	if (!self->slot.frame)
		return;
	/* Its stream could not be waited for, or another thread is where only one may be: then the
	 * stream's end ends a producer's frame. */
	f = buffer_end_slot(self->side->buffer, &self->slot);
	if (!self->filling)
		gpushm_frame_cancel(f);
}

static int traverse(PyObject *o, visitproc visit, void *arg)
{
	struct frame *self = (struct frame *)o;

	Py_VISIT(Py_TYPE(o));
	Py_VISIT((PyObject *)self->side);
	Py_VISIT(self->stream);
	Py_VISIT(self->value);
	Py_VISIT(self->shapes);
	Py_VISIT(self->slot.order.streams);
	return 0;
}

/* Garbage collection calls it before it empties slot::order, on which the frame's end waits. */
static void finalize(PyObject *o)
{
	finish_quietly((struct frame *)o);
}

static int clear(PyObject *o)
{
	struct frame *self = (struct frame *)o;

	self->on.object = NULL;
	Py_CLEAR(self->stream);
	Py_CLEAR(self->value);
	Py_CLEAR(self->shapes);
	return 0;
}

static void dealloc(PyObject *o)
{
	struct frame *self = (struct frame *)o;

	PyObject_GC_UnTrack(o);
	PyObject_ClearWeakRefs(o);
	finish_quietly(self);
	clear(o);
	Py_XDECREF((PyObject *)self->side);
	object_free(self);
}

/* ---- meta ---- */

static int decode(struct frame *self)
{
	if (self->value || self->filling)
		return 0;
	return meta_decode(&self->meta, &self->value, &self->shapes);
}

static PyObject *Frame_meta(PyObject *o, void *unused)
{
	struct frame *self = (struct frame *)o;

	if (decode(self) < 0)
		return NULL;
	return self->value ? Py_NewRef(self->value) : PyBytes_FromStringAndSize("", 0);
}

static bool is_filling(const struct frame *self)
{
	if (self->filling)
		return is_open(self);
	error_format(ERROR_READ_ONLY, EROFS,
		     "frame %llu of stream \"%U\" is its producer's to fill",
		     (unsigned long long)self->seq, self->side->name);
	return false;
}

static int Frame_set_meta(PyObject *o, PyObject *value, void *unused)
{
	struct frame *self = (struct frame *)o;
	struct meta unused_meta;

	/* NULL: del. */
	if (!is_filling(self) || meta_encode(value, self->shapes, &unused_meta) < 0)
		return -1;
	Py_CLEAR(self->value);
	self->value = value == Py_None ? NULL : Py_XNewRef(value);
	return 0;
}

/* ---- arrays ---- */

/* Elements of the shape, and at most max of them; -1 after raising. */
static int64_t elements(const struct shape *s, int64_t max)
{
	int64_t n = 1;

	for (int i = 0; i < s->ndim; i++)
		if (s->dims[i] < 0 || __builtin_mul_overflow(n, s->dims[i], &n))
			n = max = -1;
	if (n >= 0 && n <= max)
		return n;
	return error_refuse(
		ERROR_LAYOUT, ERANGE,
		"a frame's array has the elements of its slot at most, and no negative length");
}

/* The first elements of *a in another shape. Replaces *a. */
static int reshape(struct gpushm_array **a, const struct shape *s)
{
	int64_t n = elements(s, gpushm_array_size(*a));
	struct gpushm_array *flat = NULL, *part = NULL, *shaped = NULL;
	int r = n < 0 ? -EINVAL : gpushm_array_ravel(*a, 'C', &flat);

	if (r == 0)
		r = gpushm_array_slice(flat, 0, 0, n, 1, &part);
	if (r == 0)
		r = gpushm_array_reshape(part, 'C', s->ndim, s->dims, &shaped);
	/* It keeps what elements() raised. */
	r = error_result(r);
	gpushm_array_free(flat);
	gpushm_array_free(part);
	gpushm_array_free(*a);
	*a = shaped;
	return r;
}

/* The array's position in the stream's layout, which its shape has in the meta; NULL: no such
 * array. */
static PyObject *index_of(const struct frame *self, PyObject *name)
{
	_cleanup_(drop_object) PyObject *names = PyMapping_Keys((PyObject *)self->side->buffer);
	Py_ssize_t i = names ? PySequence_Index(names, name) : -1;

	if (i >= 0)
		return PyLong_FromSsize_t(i);
	PyErr_Clear();
	return NULL;
}

/* 1: the frame's array has a shape of its own. */
static int own_shape(const struct frame *self, PyObject *name, struct shape *ret)
{
	_cleanup_(drop_object) PyObject *index = self->shapes ? index_of(self, name) : NULL;
	PyObject *row = index ? PyDict_GetItemWithError(self->shapes, index) : NULL;

	if (!row)
		return PyErr_Occurred() ? -1 : 0;
	return shape_from(row, "the frame's shape", ret) < 0 ? -1 : 1;
}

static PyObject *subscript(PyObject *o, PyObject *key)
{
	struct frame *self = (struct frame *)o;
	struct gpushm_array *a = NULL;
	const char *name;
	struct shape s;
	int r, own;

	if (args_text(key, "an array's name", &name) < 0 || decode(self) < 0 || !is_open(self))
		return NULL;
	r = gpushm_frame_array(self->slot.frame, name, &a);
	if (r == -ENOENT)
		PyErr_SetObject(PyExc_KeyError, key);
	if (r < 0)
		return error_raise(r);
	own = own_shape(self, key, &s);
	if (own < 0 || (own && reshape(&a, &s) < 0)) {
		gpushm_array_free(own < 0 ? a : NULL);
		return NULL;
	}
	return array_new(self->side->buffer, 0, &a);
}

static PyObject *Frame_resize(PyObject *o, PyObject *args)
{
	struct frame *self = (struct frame *)o;
	_cleanup_(drop_object) PyObject *index = NULL, *row = NULL, *shapes = NULL, *array = NULL;
	PyObject *name, *shape, *before;
	struct meta unused_meta;
	const char *text;
	struct shape s;

	if (!PyArg_ParseTuple(args, "OO:resize", &name, &shape) ||
	    args_text(name, "an array's name", &text) < 0 || shape_from(shape, "shape", &s) < 0 ||
	    !is_filling(self))
		return NULL;
	index = index_of(self, name);
	if (!index) {
		PyErr_SetObject(PyExc_KeyError, name);
		return NULL;
	}
	row = shape_tuple(s.dims, s.ndim);
	shapes = self->shapes ? PyDict_Copy(self->shapes) : PyDict_New();
	if (!row || !shapes || PyDict_SetItem(shapes, index, row) < 0 ||
	    meta_encode(self->value, shapes, &unused_meta) < 0)
		return NULL;
	before = self->shapes;
	self->shapes = shapes;
	array = subscript(o, name);
	if (!array)
		self->shapes = before;
	else
		shapes = before;
	return take_ptr(array);
}

static PyObject *Frame_keys(PyObject *o, PyObject *unused)
{
	struct buffer *b = ((struct frame *)o)->side->buffer;

	return is_open((struct frame *)o) ? PyMapping_Keys((PyObject *)b) : NULL;
}

static Py_ssize_t length(PyObject *o)
{
	struct frame *self = (struct frame *)o;

	return is_open(self) ? PyObject_Size((PyObject *)self->side->buffer) : -1;
}

static int contains(PyObject *o, PyObject *key)
{
	struct frame *self = (struct frame *)o;

	return is_open(self) ? PySequence_Contains((PyObject *)self->side->buffer, key) : -1;
}

/* ---- getters ---- */

static PyObject *Frame_time(PyObject *o, void *unused)
{
	uint64_t ns = ((struct frame *)o)->time_ns;

	return ns ? PyFloat_FromDouble((double)ns / 1e9) : Py_NewRef(Py_None);
}

GETTER(Frame_closed, struct frame, PyBool_FromLong(!self->slot.frame))
GETTER(Frame_seq, struct frame, PyLong_FromUnsignedLongLong(self->seq))
GETTER(Frame_skipped, struct frame, PyLong_FromUnsignedLongLong(self->skipped))
GETTER(Frame_slot, struct frame, PyLong_FromUnsignedLong(self->index))

/* ---- methods ---- */

/* The argument `stream`, the frame's own where it is not given; *ret_object is borrowed. */
static int stream_argument(struct frame *self, PyObject *args, PyObject *kwargs, const char *format,
			   struct stream *ret)
{
	PyObject *stream = NULL;

	if (!args_parse(args, kwargs, Frame_publish, format, &stream))
		return -1;
	*ret = self->on;
	return stream ? stream_from(stream, ret) : 0;
}

static PyObject *Frame_publish(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct frame *self = (struct frame *)o;
	struct stream on;

	if (stream_argument(self, args, kwargs, "|O:publish", &on) < 0 || !is_filling(self))
		return NULL;
	return object_none(publish_on(self, &on));
}

static PyObject *Frame_cancel(PyObject *o, PyObject *unused)
{
	struct frame *self = (struct frame *)o;

	if (self->slot.frame && !is_filling(self))
		return NULL;
	return object_none(cancel_frame(self));
}

static PyObject *Frame_release(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct frame *self = (struct frame *)o;
	struct stream on;

	if (stream_argument(self, args, kwargs, "|O:release", &on) < 0)
		return NULL;
	if (self->filling)
		return error_format(ERROR_STATE, EBUSY,
				    "a producer's frame is published or cancelled, not released");
	return object_none(self->slot.frame ? release_on(self, &on) : 0);
}

static PyObject *Frame_ok(PyObject *o, PyObject *unused)
{
	struct frame *self = (struct frame *)o;
	int r;

	if (!is_open(self))
		return NULL;
	r = self->filling ? 0 : gpushm_frame_ok(self->slot.frame);
	if (r < 0 && r != -EPIPE && r != -ESTALE)
		return error_raise(r);
	return PyBool_FromLong(r == 0);
}

static PyObject *Frame_keep(PyObject *o, PyObject *unused)
{
	struct frame *self = (struct frame *)o;

	if (!is_open(self))
		return NULL;
	self->kept = true;
	return Py_NewRef(o);
}

static PyObject *Frame_enter(PyObject *o, PyObject *unused)
{
	return Frame_keep(o, unused);
}

static void cancel_quietly(struct frame *self)
{
	KEEP_RAISED;

	cancel_frame(self);
}

static PyObject *Frame_exit(PyObject *o, PyObject *args)
{
	struct frame *self = (struct frame *)o;
	bool failed = args_first(args) != Py_None;
	int r;

	if (self->filling && self->slot.frame && !failed) {
		if (publish_on(self, &self->on) == 0)
			Py_RETURN_NONE;
		cancel_quietly(self);
		return NULL;
	}
	if (self->filling)
		r = cancel_frame(self);
	else if (failed || !self->slot.frame)
		r = frame_release(self);
	else
		r = release_on(self, &self->on);
	/* The error that ends the block says enough. */
	if (failed)
		PyErr_Clear();
	return r < 0 && !failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *repr(PyObject *o)
{
	struct frame *self = (struct frame *)o;

	return PyUnicode_FromFormat("<gpushm.types.Frame %llu of %R%s>",
				    (unsigned long long)self->seq, self->side->name,
				    self->filling ? self->slot.frame ? ", being filled" : ", done"
				    : self->slot.frame ? ""
						       : ", released");
}

static PyType_Slot slots[] = { SLOTS_Frame,
			       { Py_tp_dealloc, dealloc },
			       { Py_tp_traverse, traverse },
			       { Py_tp_clear, clear },
			       { Py_tp_finalize, finalize },
			       { Py_tp_repr, repr },
			       { Py_tp_members, object_members },
			       { Py_tp_iter, object_iterate },
			       { Py_mp_length, length },
			       { Py_mp_subscript, subscript },
			       { Py_sq_contains, contains },
			       { 0, NULL } };

struct type_row frame_row = {
	TYPE_SPEC("gpushm.types.Frame", struct frame, Py_TPFLAGS_HAVE_GC, slots), &frame_type, NULL
};
