/* SPDX-License-Identifier: MIT
 *
 * Buffers: opened, published, closed. One owns a buffer of libgpushm's and a reference on its
 * connection. It knows the arrays, tensors and calls that use it, because the library would only
 * count them, and a person wants to know which.
 *
 * It is closed by close(), or when its last user has gone. The latter happens in a destructor, with
 * nobody to tell of a failure, and perhaps in any thread: the library closes what can be closed.
 */
#include "client/python/core/buffer.h"

#include "client/python/core/array.h"
#include "client/python/core/error.h"

#define NAMED_MAX 3 /* arrays that a message lists */

static struct buffer *all; /* buffer::next; those that are open; borrowed */

static void enlist(struct buffer *self)
{
	self->next = all;
	self->place = &all;
	if (all)
		all->place = &self->next;
	all = self;
}

static void delist(struct buffer *self)
{
	*self->place = self->next;
	if (self->next)
		self->next->place = self->place;
	self->place = NULL;
}

PyObject *buffer_list(void)
{
	_cleanup_(drop_object) PyObject *list = PyList_New(0);

	for (struct buffer *b = all; list && b; b = b->next) {
		/* One that is being destroyed, in a call without the GIL, is no more to be had. */
		if (Py_REFCNT((PyObject *)b) > 0 && PyList_Append(list, (PyObject *)b) < 0)
			return NULL;
	}
	return take_ptr(list);
}

struct buffer *buffer_new(struct connection *c, struct gpushm_buffer *b, PyObject *name)
{
	struct buffer *self = object_new(types.buffer_made);

	if (!self) {
		gpushm_close(b);
		return NULL;
	}
	self->buffer = b;
	enlist(self);
	self->connection = (struct connection *)Py_NewRef((PyObject *)c);
	self->name = Py_NewRef(name);
	return self;
}

bool buffer_is_open(const struct buffer *self)
{
	if (self->buffer && !self->left)
		return true;
	PyErr_SetString(PyExc_ValueError, "the buffer is closed");
	return false;
}

const char *state_word(enum gpushm_state state)
{
	static const char *const words[] = { "unknown", "filling", "sealed", "shared" };

	return words[(unsigned)state < array_size(words) ? (unsigned)state : 0];
}

const char *kind_word(enum gpushm_kind kind)
{
	static const char *const words[] = { "unknown", "host", "pinned", "vmm", "mempool" };

	return words[(unsigned)kind < array_size(words) ? (unsigned)kind : 0];
}

int buffer_array(struct buffer *self, const char *name, size_t at, struct gpushm_array **ret)
{
	int r;

	if (self->calls == 0)
		return name ? gpushm_array_get(self->buffer, name, ret)
			    : gpushm_array_at(self->buffer, at, ret);
	/* A publish that is under way has the buffer's lock, and may wait for a GPU. */
	self->calls++;
	Py_BEGIN_ALLOW_THREADS
	r = name ? gpushm_array_get(self->buffer, name, ret)
		 : gpushm_array_at(self->buffer, at, ret);
	Py_END_ALLOW_THREADS
	self->calls--;
	return r;
}

/* ---- who uses it ---- */

/* `2 views` and the like, behind what is in *text already. false: raised. */
static bool count(PyObject **text, unsigned n, const char *what)
{
	PyObject *longer;

	if (n == 0)
		return true;
	longer = PyUnicode_FromFormat("%U%s%u %s%s", *text,
				      PyUnicode_GetLength(*text) > 0 ? ", " : "", n, what,
				      n == 1 ? "" : "s");
	replace_object(text, longer);
	return longer != NULL;
}

/* What a view looks like, for a message: `"w" (3, 4) float32`. */
static PyObject *describe(const struct gpushm_array *a)
{
	_cleanup_(drop_object) PyObject *shape = NULL;
	char dtype[32] = "?";
	int ndim = gpushm_array_ndim(a);

	shape = PyTuple_New(ndim);
	for (int i = 0; shape && i < ndim; i++) {
		PyObject *n = PyLong_FromLongLong(gpushm_array_dim(a, i));

		if (!n || PyTuple_SetItem(shape, i, n) < 0)
			return NULL;
	}
	gpushm_dtype_format(gpushm_array_dtype(a), dtype, sizeof(dtype));
	if (!shape)
		return NULL;
	return *gpushm_array_name(a)
		       ? PyUnicode_FromFormat("\"%s\" %S %s", gpushm_array_name(a), shape, dtype)
		       : PyUnicode_FromFormat("%S %s", shape, dtype);
}

static bool list_views(const struct buffer *self, PyObject **text)
{
	unsigned n = 0;

	for (const struct array *a = self->arrays; a; a = a->next) {
		_cleanup_(drop_object) PyObject *one = NULL;
		PyObject *longer;

		if (a == self->owner || a->span)
			continue;
		if (n++ == NAMED_MAX)
			break;
		one = describe(a->array);
		if (!one)
			return false;
		longer = PyUnicode_FromFormat("%U%s%U", *text, n == 1 ? " (" : "; ", one);
		replace_object(text, longer);
		if (!longer)
			return false;
	}
	if (n > 0)
		replace_object(text,
			       PyUnicode_FromFormat(n > NAMED_MAX ? "%U; ...)" : "%U)", *text));
	return *text != NULL;
}

struct users {
	unsigned views, spans, memoryviews;
	unsigned writable; /* memoryviews and spans */
};

static struct users users_of(const struct buffer *self)
{
	struct users u = { 0 };

	for (const struct array *a = self->arrays; a; a = a->next) {
		u.memoryviews += a->span ? 0 : a->memoryviews;
		u.writable += a->span ? a->span_writable : a->writable_memoryviews;
		u.spans += a->span;
		u.views += !a->span && a != self->owner;
	}
	return u;
}

/* "2 views ("w" (3, 4) float32; ...), 1 DLPack tensor"; "" where there are none. NULL: raised. */
static PyObject *users_text(const struct buffer *self)
{
	struct users u = users_of(self);
	PyObject *text = PyUnicode_FromString("");

	if (text && count(&text, u.views, "view") && list_views(self, &text) &&
	    count(&text, u.spans, "NumPy array") && count(&text, u.memoryviews, "memoryview") &&
	    count(&text, self->tensors, "DLPack tensor") &&
	    count(&text, self->calls, "call of another thread"))
		return text;
	Py_XDECREF(text);
	return NULL;
}

static bool in_use(const struct buffer *self)
{
	struct users u = users_of(self);

	return u.views || u.spans || u.memoryviews || self->tensors || self->calls;
}

/* ---- the end ---- */

/* Nothing uses it but, perhaps, its owner. */
static int end(struct buffer *self)
{
	struct gpushm_buffer *b = take_ptr(self->buffer);
	int r;

	delist(self);
	if (self->owner)
		array_drop(self->owner);
	Py_BEGIN_ALLOW_THREADS
	r = gpushm_close(b);
	Py_END_ALLOW_THREADS
	return r;
}

int buffer_close(struct buffer *self)
{
	_cleanup_(drop_object) PyObject *text = NULL;
	int r;

	if (!self->buffer || self->left)
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
	if (r < 0)
		error_raise(r);
	return r < 0 ? -1 : 0;
}

/* For destructors: nobody is there to be told. */
static void end_quietly(struct buffer *self)
{
	PyObject *type, *value, *traceback;

	PyErr_Fetch(&type, &value, &traceback);
	end(self);
	PyErr_Restore(type, value, traceback);
}

void buffer_settle(struct buffer *self)
{
	if (self->left && self->buffer && !in_use(self))
		end_quietly(self);
}

/* Views are ours: one that is closed says so to whoever goes on with it. */
static void drop_views(struct buffer *self)
{
	struct array *next;

	for (struct array *a = self->arrays; a; a = next) {
		next = a->next;
		if (a != self->owner && !a->span && a->memoryviews == 0 && a->calls == 0)
			array_drop(a);
	}
}

int buffer_leave(struct buffer *self)
{
	_cleanup_(drop_object) PyObject *text = NULL;

	if (self->buffer && !self->left)
		drop_views(self);
	if (!self->buffer || self->left || !in_use(self))
		return buffer_close(self);
	text = users_text(self);
	if (!text)
		return -1;
	self->left = true;
	return PyErr_WarnFormat(
		PyExc_ResourceWarning, 1,
		"buffer \"%s\" stays open for %U, and is closed with the last of them",
		gpushm_buffer_name(self->buffer), text);
}

void buffer_dealloc(PyObject *o)
{
	struct buffer *self = (struct buffer *)o;

	if (self->weakrefs)
		PyObject_ClearWeakRefs(o);
	if (self->buffer)
		end_quietly(self);
	Py_XDECREF((PyObject *)self->connection);
	Py_XDECREF(self->name);
	order_done(&self->order);
	object_free(self);
}

/* ---- publishing ---- */

/* A sealed buffer's memory is read-only: who still has a pointer that he may write through would
 * crash by it. */
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

int buffer_publish(struct buffer *self, const char *word)
{
	enum gpushm_state state;
	int r;

	if (!buffer_is_open(self))
		return -1;
	if (strcmp(word, "sealed") == 0) {
		state = GPUSHM_SEALED;
	} else if (strcmp(word, "shared") == 0) {
		state = GPUSHM_SHARED;
	} else {
		PyErr_Format(PyExc_ValueError, "publish \"sealed\" or \"shared\", not \"%s\"",
			     word);
		return -1;
	}
	if (state == GPUSHM_SEALED && !may_be_sealed(self))
		return -1;
	self->calls++;
	self->sealing += state == GPUSHM_SEALED;
	Py_BEGIN_ALLOW_THREADS
	r = gpushm_publish(self->buffer, state);
	Py_END_ALLOW_THREADS
	self->calls--;
	self->sealing -= state == GPUSHM_SEALED;
	if (r < 0)
		error_raise(r);
	buffer_settle(self);
	return r < 0 ? -1 : 0;
}

int buffer_queued(struct buffer *self, const struct stream *stream)
{
	/* What the CPU copies is done. And a stream that may be destroyed meanwhile must not be
	 * asked for: a driver crashes. */
	if (!stream->given || !stream->lasts || gpushm_buffer_kind(self->buffer) == GPUSHM_HOST)
		return 0;
	return order_add(&self->order, stream);
}
