/* SPDX-License-Identifier: MIT
 *
 * The life of buffers and arrays. A buffer owns a buffer of libgpushm's and a reference to its
 * connection. It knows the arrays, tensors and calls that use it: the library only counts its
 * users, and an error message should name them. An array owns an array of libgpushm's and a
 * reference to its buffer; it never changes, except that it can be closed.
 *
 * A buffer is closed by close(), or when its last user ends. The latter happens in a destructor, in
 * any thread, and cannot report an error: the library closes as much as possible.
 */
#include "client/python/core/buffer.h"

#include "client/gpushm_private.h"
#include "client/python/core/write_fault.h"
#include "proto/kind.h"

#include <stdio.h>

static struct list all = { &all, &all }; /* buffer::link: all open buffers, the newest first */

PyObject *module_opened(PyObject *module, PyObject *unused)
{
	PyObject *list = PyList_New(0);
	struct buffer *b;

	list_foreach (b, &all, link) {
		/* A buffer without references is being destroyed, in a call without the GIL. */
		if (list && Py_REFCNT((PyObject *)b) > 0)
			object_append(&list, Py_NewRef((PyObject *)b));
	}
	return list;
}

struct buffer *pybuffer_new(struct connection *c, struct gpushm_buffer *b, PyObject *name,
			    struct gpushm_stream *stream)
{
	struct buffer *self = object_new(types.buffer_made);

	if (!self) {
		if (stream)
			gpushm_stream_close(stream);
		else
			gpushm_close(b);
		return NULL;
	}
	self->buffer = b;
	self->starts[0] = gpushm_buffer_device_ptr(b);
	self->starts[1] = gpushm_buffer_host_ptr(b);
	self->stream = stream;
	list_init(&self->arrays);
	list_init(&self->slots);
	list_insert(all.next, &self->link);
	write_fault_watch(b);
	self->connection = (struct connection *)Py_NewRef((PyObject *)c);
	self->name = Py_NewRef(name);
	return self;
}

struct buffer *buffer_hinted(struct buffer *b, uint32_t flags)
{
	int own = b ? gpushm_buffer_device(b->buffer) : -1;
	int current = own < 0 || flags & GPUSHM_SET_DEVICE ? -1 : gpushm_current_device();

	if (current < 0 || current == own ||
	    object_done(object_call(types.libraries_module, "warn_device", "(Oii)", b->name, own,
				    current)) == 0)
		return b;
	b->scratch = true;
	Py_DECREF((PyObject *)b);
	return NULL;
}

struct buffer *buffer_of(PyObject *o)
{
	if (PyObject_TypeCheck(o, types.array))
		return ((struct array *)o)->buffer;
	return PyObject_TypeCheck(o, types.buffer) ? (struct buffer *)o : NULL;
}

struct buffer *buffer_of_open(PyObject *o)
{
	bool is_open = !PyObject_TypeCheck(o, types.array) || array_is_open((struct array *)o);

	return is_open ? buffer_of(o) : NULL;
}

bool buffer_is_open(const struct buffer *self)
{
	if (self->buffer && !self->left)
		return true;
	PyErr_SetString(PyExc_ValueError, "the buffer is closed");
	return false;
}

bool buffer_is_alive(const struct buffer *self)
{
	return self->buffer || buffer_is_open(self);
}

int buffer_array(struct buffer *self, const char *name, size_t at, struct gpushm_array **ret)
{
	int r;

	if (self->calls == 0)
		return name ? gpushm_array_get(self->buffer, name, ret)
			    : gpushm_array_at(self->buffer, at, ret);
	/* A publish that runs now has the buffer's lock, and may wait for a GPU. */
	self->calls++;
	WITHOUT_GIL(r = name ? gpushm_array_get(self->buffer, name, ret)
			     : gpushm_array_at(self->buffer, at, ret));
	self->calls--;
	return r;
}

static bool is_in(const struct array *self, const struct slot *slot)
{
	uint64_t at = gpushm_array_offset(self->array);

	return at >= slot->from && at < slot->to;
}

/* The slot of a stream's buffer that it is in; NULL: no frame of this process has it. */
static struct slot *slot_of(const struct array *self)
{
	struct slot *s;

	list_foreach (s, &self->buffer->slots, link)
		if (is_in(self, s))
			return s;
	return NULL;
}

/* ---- the users of a buffer ---- */

struct users {
	unsigned views, spans, memoryviews;
	unsigned writable; /* memoryviews and spans */
};

static struct users users_of(const struct buffer *self)
{
	struct users u = { 0 };
	struct array *a;

	list_foreach (a, &self->arrays, link) {
		u.memoryviews += a->span ? 0 : a->memoryviews;
		u.writable += a->span ? a->span_writable : a->writable_memoryviews;
		u.spans += a->span;
		u.views += !a->span && a != self->owner;
	}
	return u;
}

static bool in_use_by_others(const struct buffer *self, unsigned calls)
{
	struct users u = users_of(self);

	return u.views || u.spans || u.memoryviews || self->tensors || self->calls > calls;
}

static bool in_use(const struct buffer *self)
{
	return in_use_by_others(self, 0);
}

/* "2 views ("w" (3, 4) float32; ...), 1 DLPack tensor". Other threads may run meanwhile. */
static PyObject *users_text(const struct buffer *self)
{
	struct users u = users_of(self);
	PyObject *views = PyList_New(0);
	struct array *a;

	/* Nothing in the loop may start Python's garbage collector, which may free arrays of the
	 * list. One without references is being destroyed, in a call without the GIL. */
	list_foreach (a, &self->arrays, link)
		if (views && a != self->owner && !a->span && Py_REFCNT((PyObject *)a) > 0)
			object_append(&views, Py_NewRef((PyObject *)a));
	return views ? object_call(types.unpublished_module, "users", "(NIIII)", views, u.spans,
				   u.memoryviews, self->tensors, self->calls)
		     : NULL;
}

/* ---- the end of arrays and buffers ---- */

/* Frees the library's array and removes it from its buffer's list. No memoryview and no call may
 * use it any more. */
static void array_drop(struct array *self)
{
	if (!self->array)
		return;
	if (self->buffer->owner == self)
		self->buffer->owner = NULL;
	list_drop(&self->link);
	self->array = gpushm_array_free(self->array);
	buffer_settle(self->buffer);
	/* If it was the last one to use the frame, this releases it. */
	Py_CLEAR(self->frame);
}

/* Whether the contents would be lost if the buffer ended now: not in a forked child, where the
 * buffer is the parent's. */
static bool is_unpublished(const struct buffer *self)
{
	const struct gpushm_buffer *b = self->buffer;

	return b && !self->scratch && gpushm_buffer_state(b) == GPUSHM_FILLING &&
	       !(gpushm_buffer_notice(b) & GPUSHM_NOTICE_UNLINKED) &&
	       !gpushm_private_is_inherited(b);
}

static int warn_once(struct buffer *self)
{
	if (self->warned)
		return 0;
	self->warned = true;
	return object_done(object_call(types.unpublished_module, "warn", "(OO)", self->name,
				       self->place ? self->place : Py_None));
}

/* Where no exception can be raised. One that is being handled stays as it is. */
static void warn_once_quietly(struct buffer *self)
{
	KEEP_RAISED;

	if (warn_once(self) < 0)
		PyErr_WriteUnraisable(self->name);
}

PyObject *module_report_unpublished(PyObject *module, PyObject *unused)
{
	_cleanup_(drop_object) PyObject *list = module_opened(module, NULL);

	for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++) {
		struct buffer *b = (struct buffer *)PyList_GetItem(list, i);

		if (is_unpublished(b))
			warn_once_quietly(b);
	}
	return list ? Py_NewRef(Py_None) : NULL;
}

/* Closes a buffer that has no users except, perhaps, its owner. Returns as gpushm_close(). */
static int end(struct buffer *self)
{
	struct gpushm_buffer *b = take_ptr(self->buffer);
	struct gpushm_stream *stream = take_ptr(self->stream);
	bool discard = self->scratch && gpushm_buffer_state(b) == GPUSHM_FILLING;
	int r = 0;

	list_drop(&self->link);
	write_fault_forget(b);
	if (self->owner)
		array_drop(self->owner);
	Py_BEGIN_ALLOW_THREADS
	if (stream)
		gpushm_stream_close(stream);
	else
		r = discard ? gpushm_discard(b) : gpushm_close(b);
	Py_END_ALLOW_THREADS
	return r;
}

/* Its Stream or Reader closes it. */
static int refuse_of_stream(const struct buffer *self)
{
	if (!self->stream)
		return 0;
	return error_refuse(ERROR_STATE, EBUSY,
			    "buffer \"%s\" belongs to a stream: close the Stream or the Reader",
			    gpushm_buffer_name(self->buffer));
}

/* Where threads that suspend it are its only users, the last of them closes it. */
static bool leave_to_suspends(struct buffer *self)
{
	if (self->suspending == 0 || in_use_by_others(self, self->suspending))
		return false;
	self->left = true;
	return true;
}

int buffer_close(struct buffer *self)
{
	_cleanup_(drop_object) PyObject *text = NULL;
	int r;

	if (!self->buffer || self->left)
		return 0;
	if (refuse_of_stream(self) < 0)
		return -1;
	if (leave_to_suspends(self))
		return 0;
	if (in_use(self)) {
		text = users_text(self);
		if (text)
			error_format(
				ERROR_IN_USE, EBUSY,
				"buffer \"%s\" can't be closed: alive are %U; delete them first",
				gpushm_buffer_name(self->buffer), text);
		return -1;
	}
	r = end(self);
	return r == GPUSHM_UNPUBLISHED ? warn_once(self) : error_result(r);
}

PyObject *OfBuffer_discard(PyObject *o, PyObject *unused)
{
	struct buffer *self = buffer_of(o);
	bool was = self->scratch;
	int r;

	if (!self->buffer || self->left)
		Py_RETURN_NONE;
	if (gpushm_buffer_state(self->buffer) != GPUSHM_FILLING)
		return error_format(
			ERROR_STATE, EBUSY,
			"buffer \"%s\" is published: unlink() frees its name, and close() "
			"closes it",
			gpushm_buffer_name(self->buffer));
	self->scratch = true;
	r = buffer_close(self);
	if (self->buffer)
		self->scratch = was;
	return object_none(r);
}

/* For destructors, which cannot raise. */
static void end_quietly(struct buffer *self)
{
	KEEP_RAISED;

	if (end(self) == GPUSHM_UNPUBLISHED)
		warn_once_quietly(self);
}

void buffer_settle(struct buffer *self)
{
	if (self->left && self->buffer && !in_use(self))
		end_quietly(self);
}

/* A view that is dropped here raises "closed" where it is used later. */
static void drop_views(struct buffer *self)
{
	struct array *a;

	list_foreach (a, &self->arrays, link) {
		if (a != self->owner && !a->span && a->memoryviews == 0 && a->calls == 0)
			array_drop(a);
	}
}

/* Whether an exception of that type tells a user that the block has failed. SystemExit does not:
 * Python prints nothing for it. */
static bool is_an_error(PyObject *raised)
{
	return PyErr_GivenExceptionMatches(raised, PyExc_Exception) ||
	       PyErr_GivenExceptionMatches(raised, PyExc_KeyboardInterrupt);
}

/* Tensors and memoryviews still use the buffer. Nobody can publish it any more. */
static int leave_to_users(struct buffer *self)
{
	_cleanup_(drop_object) PyObject *text = users_text(self);
	int r;

	if (!text)
		return -1;
	self->left = true;
	if (is_unpublished(self) && warn_once(self) < 0)
		return -1;
	r = PyErr_WarnFormat(PyExc_ResourceWarning, 1,
			     "buffer \"%s\" stays open for %U, and is closed with the last of them",
			     gpushm_buffer_name(self->buffer), text);
	/* The last of them may have ended before it was left. */
	buffer_settle(self);
	return r;
}

int buffer_leave(struct buffer *self, PyObject *raised)
{
	if (!self->buffer || self->left)
		return 0;
	if (refuse_of_stream(self) < 0)
		return -1;
	drop_views(self);
	self->warned |= is_an_error(raised);
	return in_use(self) && !leave_to_suspends(self) ? leave_to_users(self) : buffer_close(self);
}

/* libgpushm ends the frames with the stream. */
static void end_slots(struct buffer *self)
{
	struct slot *s;

	list_foreach (s, &self->slots, link) {
		PyObject *owner = Py_NewRef(s->owner);

		buffer_end_slot(self, s);
		Py_DECREF(owner);
	}
}

int buffer_end_stream(struct buffer *self)
{
	int r;

	end_slots(self);
	drop_views(self);
	if (!in_use(self))
		return error_result(end(self));
	self->left = true;
	buffer_hold(self);
	WITHOUT_GIL(r = gpushm_stream_leave(self->stream));
	return buffer_release(self, r);
}

struct gpushm_frame *buffer_end_slot(struct buffer *self, struct slot *slot)
{
	struct array *a;

	list_foreach (a, &self->arrays, link)
		if (is_in(a, slot) && !a->span && a->memoryviews == 0 && a->calls == 0)
			array_drop(a);
	list_drop(&slot->link);
	order_done(&slot->order);
	return take_ptr(slot->frame);
}

void buffer_hold(struct buffer *self)
{
	self->calls++;
}

int buffer_release(struct buffer *self, int r)
{
	self->calls--;
	/* First, because the end of the buffer is a call of libgpushm. */
	r = error_result(r);
	buffer_settle(self);
	return r;
}

int buffer_traverse(PyObject *o, visitproc visit, void *arg)
{
	struct buffer *self = (struct buffer *)o;

	Py_VISIT(Py_TYPE(o));
	Py_VISIT((PyObject *)self->connection);
	Py_VISIT(self->name);
	Py_VISIT(self->place);
	Py_VISIT(self->order.streams);
	return 0;
}

void buffer_dealloc(PyObject *o)
{
	struct buffer *self = (struct buffer *)o;

	PyObject_GC_UnTrack(o);
	if (self->weakrefs)
		PyObject_ClearWeakRefs(o);
	if (self->buffer)
		end_quietly(self);
	Py_XDECREF((PyObject *)self->connection);
	Py_XDECREF(self->name);
	Py_XDECREF(self->place);
	order_done(&self->order);
	object_free(self);
}

/* ---- publishing ---- */

/* The memory of a sealed buffer is read-only: a write through a pointer from before would crash. */
static bool may_be_sealed(const struct buffer *self)
{
	struct users u = users_of(self);

	if (u.writable == 0 && self->writable_tensors == 0 && self->writing == 0)
		return true;
	error_format(
		ERROR_IN_USE, EBUSY,
		"buffer \"%s\" can't be sealed while %u writable NumPy arrays or memoryviews and "
		"%u writable DLPack tensors are alive, and %u copies to it by other threads are "
		"under way: a write would crash; delete or await them first, or publish it "
		"\"shared\"",
		gpushm_buffer_name(self->buffer), u.writable, self->writable_tensors,
		self->writing);
	return false;
}

static int warn_if_not_kept(const struct buffer *self)
{
	if (gpushm_buffer_kept(self->buffer) != -ENOSPC)
		return 0;
	return object_done(
		object_call(types.unpublished_module, "warn_not_kept", "(s)", gpushm_error()));
}

/* name: a str, or NULL for its own. Without the GIL the str is kept by the caller's arguments. */
static PyObject *publish(PyObject *o, const char *word, PyObject *name, uint32_t flags)
{
	struct buffer *self = buffer_of_open(o);
	const char *text = NULL;
	enum gpushm_state state;
	int r;

	if (!self || (name && args_text(name, "name", &text) < 0) || !buffer_is_open(self))
		return NULL;
	if (strcmp(word, "sealed") == 0)
		state = GPUSHM_SEALED;
	else if (strcmp(word, "shared") == 0)
		state = GPUSHM_SHARED;
	else
		return PyErr_Format(PyExc_ValueError,
				    "publish \"sealed\" or \"shared\", not \"%s\"", word);
	if (object_done(object_call(types.libraries_module, "before_publish", "(O)", self)) < 0 ||
	    !buffer_is_open(self) || (state == GPUSHM_SEALED && !may_be_sealed(self)))
		return NULL;
	buffer_hold(self);
	self->sealing += state == GPUSHM_SEALED;
	WITHOUT_GIL(r = text ? gpushm_publish_as(self->buffer, state, text, flags)
			     : gpushm_publish(self->buffer, state));
	self->sealing -= state == GPUSHM_SEALED;
	if (r >= 0 && name) {
		Py_DECREF(self->name);
		self->name = Py_NewRef(name);
	}
	return object_none(buffer_release(self, r < 0 ? r : warn_if_not_kept(self)));
}

PyObject *OfBuffer_publish(PyObject *o, PyObject *args)
{
	const char *word = "sealed";

	if (!PyArg_ParseTuple(args, "|s:publish", &word))
		return NULL;
	return publish(o, word, NULL, 0);
}

PyObject *OfBuffer_publish_as(PyObject *o, PyObject *args, PyObject *kwargs)
{
	const char *word = "sealed";
	PyObject *name;
	int replace = 0;

	if (!args_parse(args, kwargs, OfBuffer_publish_as, "O|s$p:publish_as", &name, &word,
			&replace))
		return NULL;
	return publish(o, word, name, replace ? GPUSHM_REPLACE : 0);
}

PyObject *Buffer_set_attrs(PyObject *o, PyObject *attrs)
{
	struct buffer *self = (struct buffer *)o;
	_cleanup_(options_done) struct options options = { 0 };
	int r;

	if (options_attrs(attrs, &options) < 0 || !buffer_is_open(self))
		return NULL;
	buffer_hold(self);
	WITHOUT_GIL(r = gpushm_set_attrs(self->buffer, options.o.attrs, options.o.n_attrs));
	return object_none(buffer_release(self, r));
}

/* ---- arrays ---- */

PyObject *array_new(struct buffer *b, int r, struct gpushm_array **a)
{
	struct array *self;
	struct slot *slot;

	if (r < 0)
		return error_raise(r);
	self = object_new(types.array_made);
	if (!self) {
		*a = gpushm_array_free(*a);
		return NULL;
	}
	self->array = take_ptr(*a);
	self->buffer = (struct buffer *)Py_NewRef((PyObject *)b);
	list_insert(b->arrays.next, &self->link);
	slot = slot_of(self);
	self->frame = slot ? Py_NewRef(slot->owner) : NULL;
	return (PyObject *)self;
}

bool array_is_open(const struct array *self)
{
	if (self->array && !(self->buffer->left && self->buffer->owner == self))
		return true;
	PyErr_SetString(PyExc_ValueError, "the array is closed");
	return false;
}

void array_hold(struct array *self)
{
	self->calls++;
	buffer_hold(self->buffer);
}

void array_release(struct array *self)
{
	self->calls--;
	buffer_release(self->buffer, 0);
}

PyObject *Array_close(PyObject *o, PyObject *unused)
{
	struct array *self = (struct array *)o;

	if (!self->array)
		Py_RETURN_NONE;
	if (self->buffer->owner == self)
		return object_none(buffer_close(self->buffer));
	if (self->span)
		return error_format(ERROR_IN_USE, EBUSY,
				    "it stands for the memory of a NumPy array");
	if (self->memoryviews > 0 || self->calls > 0)
		return error_format(
			ERROR_IN_USE, EBUSY,
			"the view can't be closed: alive are %u memoryviews and %u calls of other "
			"threads; delete them first",
			self->memoryviews, self->calls);
	array_drop(self);
	Py_RETURN_NONE;
}

struct order *array_order(struct array *self)
{
	struct slot *s = slot_of(self);

	return s ? &s->order : &self->buffer->order;
}

int array_queued(struct array *self, const struct stream *stream)
{
	/* Copies by the CPU are done already. And a stream that may be destroyed must not be waited
	 * for later: a driver crashes then. */
	if (!stream->given || !stream->lasts ||
	    !kind_of(gpushm_buffer_kind(self->buffer->buffer))->by_driver)
		return 0;
	return order_add(array_order(self), stream);
}

Py_ssize_t array_itemsize(const struct array *self)
{
	uint64_t bits = gpushm_dtype_bits(gpushm_array_dtype(self->array));

	return bits % 8 ? 0 : (Py_ssize_t)(bits / 8);
}

bool array_is_writable(const struct array *self)
{
	return !self->buffer->sealing && !gpushm_array_read_only(self->array);
}

int array_check_writable(const struct array *self)
{
	if (array_is_writable(self))
		return 0;
	return error_refuse(ERROR_READ_ONLY, EROFS, "buffer \"%s\" is open for reading only",
			    gpushm_buffer_name(self->buffer->buffer));
}

int array_check_child(const struct array *self)
{
	struct gpushm_array *a = NULL;
	int r = gpushm_array_dup(self->array, &a);

	gpushm_array_free(a);
	return error_result(r);
}

int array_traverse(PyObject *o, visitproc visit, void *arg)
{
	struct array *self = (struct array *)o;

	Py_VISIT(Py_TYPE(o));
	Py_VISIT((PyObject *)self->buffer);
	Py_VISIT(self->frame);
	return 0;
}

void array_dealloc(PyObject *o)
{
	struct array *self = (struct array *)o;

	PyObject_GC_UnTrack(o);
	if (self->weakrefs)
		PyObject_ClearWeakRefs(o);
	if (self->buffer)
		array_drop(self);
	free(self->format);
	/* The array may hold the last reference: then this closes the buffer. */
	Py_XDECREF((PyObject *)self->buffer);
	object_free(self);
}
