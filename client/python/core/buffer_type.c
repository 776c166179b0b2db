/* SPDX-License-Identifier: MIT
 *
 * Buffer's getters, methods and the mapping of names to arrays. Getters ask nobody; of a closed
 * buffer name, closed and connection are left, and the others raise ValueError.
 */
#include "client/python/core/buffer_type.h"

#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/dtype.h"
#include "client/python/core/error.h"
#include "client/python/core/view.h"

/* The buffer, while it is open for whoever has it. NULL: raised. */
static struct gpushm_buffer *opened(PyObject *o)
{
	struct buffer *self = (struct buffer *)o;

	return buffer_is_open(self) ? self->buffer : NULL;
}

/* The buffer, while anybody has it: views that were left behind ask it, too. NULL: raised. */
static struct gpushm_buffer *alive(PyObject *o)
{
	struct buffer *self = (struct buffer *)o;

	if (!self->buffer)
		buffer_is_open(self);
	return self->buffer;
}

/* ---- getters ---- */

static PyObject *get_name(PyObject *o, void *unused)
{
	return Py_NewRef(((struct buffer *)o)->name);
}

static PyObject *get_pool(PyObject *o, void *unused)
{
	struct gpushm_buffer *b = alive(o);

	return b ? PyUnicode_FromString(gpushm_buffer_pool(b)) : NULL;
}

static PyObject *get_kind(PyObject *o, void *unused)
{
	struct gpushm_buffer *b = alive(o);

	return b ? PyUnicode_FromString(kind_word(gpushm_buffer_kind(b))) : NULL;
}

static PyObject *get_state(PyObject *o, void *unused)
{
	struct gpushm_buffer *b = alive(o);

	return b ? PyUnicode_FromString(state_word(gpushm_buffer_state(b))) : NULL;
}

/* Numbers: which one is in the closure. */
static PyObject *get_number(PyObject *o, void *closure)
{
	uint64_t (*number)(const struct gpushm_buffer *b) =
		*(uint64_t(**)(const struct gpushm_buffer *))closure;
	struct gpushm_buffer *b = alive(o);

	return b ? PyLong_FromUnsignedLongLong(number(b)) : NULL;
}

static PyObject *get_truth(PyObject *o, void *closure)
{
	int (*truth)(const struct gpushm_buffer *b) =
		*(int (**)(const struct gpushm_buffer *))closure;
	struct gpushm_buffer *b = alive(o);

	return b ? PyBool_FromLong(truth(b)) : NULL;
}

static int is_readonly(const struct gpushm_buffer *b)
{
	return gpushm_buffer_access(b) != GPUSHM_WRITE;
}

/* A function is no void *: its address is kept in one. */
static uint64_t (*number_id)(const struct gpushm_buffer *) = gpushm_buffer_id;
static uint64_t (*number_bytes)(const struct gpushm_buffer *) = gpushm_buffer_bytes;
static uint64_t (*number_digest)(const struct gpushm_buffer *) = gpushm_buffer_digest;
static int (*truth_readonly)(const struct gpushm_buffer *) = is_readonly;
static int (*truth_dirty)(const struct gpushm_buffer *) = gpushm_buffer_dirty;
static int (*truth_lost)(const struct gpushm_buffer *) = gpushm_buffer_lost;

static PyObject *get_device(PyObject *o, void *unused)
{
	struct gpushm_buffer *b = alive(o);
	int device = b ? gpushm_buffer_device(b) : -1;

	if (!b)
		return NULL;
	return device < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(device);
}

static PyObject *address(void *p)
{
	return p ? PyLong_FromVoidPtr(p) : Py_NewRef(Py_None);
}

static PyObject *get_device_ptr(PyObject *o, void *unused)
{
	struct gpushm_buffer *b = alive(o);

	return b ? address(gpushm_buffer_device_ptr(b)) : NULL;
}

static PyObject *get_host_ptr(PyObject *o, void *unused)
{
	struct gpushm_buffer *b = alive(o);

	return b ? address(gpushm_buffer_host_ptr(b)) : NULL;
}

static PyObject *get_closed(PyObject *o, void *unused)
{
	return PyBool_FromLong(!((struct buffer *)o)->buffer || ((struct buffer *)o)->left);
}

static PyObject *get_connection(PyObject *o, void *unused)
{
	return Py_NewRef((PyObject *)((struct buffer *)o)->connection);
}

static PyGetSetDef getters[] = {
	{ "name", get_name, NULL, "The name, as it was asked for; of a closed one, too.", NULL },
	{ "pool", get_pool, NULL, "The name of the pool that its memory is from.", NULL },
	{ "kind", get_kind, NULL, "Of the pool: 'host', 'pinned', 'vmm' or 'mempool'.", NULL },
	{ "state", get_state, NULL, "'filling', 'sealed' or 'shared'.", NULL },
	{ "id", get_number, NULL, "A number that no other buffer ever has.", &number_id },
	{ "nbytes", get_number, NULL, "The buffer's size in bytes.", &number_bytes },
	{ "digest", get_number, NULL, "Of the layout: equal layouts, equal digests.",
	  &number_digest },
	{ "readonly", get_truth, NULL, "Whether this process may not write to it.",
	  &truth_readonly },
	{ "dirty", get_truth, NULL, "Whether a writer had died when it was opened.", &truth_dirty },
	{ "lost", get_truth, NULL,
	  "Whether a new daemon does not know it any more: what is mapped stays usable, but\n"
	  "nobody keeps it for this process.",
	  &truth_lost },
	{ "device", get_device, NULL,
	  "This process's ordinal of the GPU; None: host or pinned memory.", NULL },
	{ "device_ptr", get_device_ptr, NULL,
	  "Where it starts for a GPU, as an int; None: nowhere.", NULL },
	{ "host_ptr", get_host_ptr, NULL, "Where it starts for the CPU, as an int; None: nowhere.",
	  NULL },
	{ "closed", get_closed, NULL, "Whether it is closed.", NULL },
	{ "connection", get_connection, NULL, "The Connection that it was opened through.", NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

/* ---- the mapping ---- */

static Py_ssize_t length(PyObject *o)
{
	struct gpushm_buffer *b = opened(o);

	return b ? (Py_ssize_t)gpushm_buffer_arrays(b) : -1;
}

/* -ENOENT is the caller's to tell. */
static int find(PyObject *o, PyObject *key, struct gpushm_array **ret)
{
	struct gpushm_buffer *b = opened(o);
	const char *name;
	Py_ssize_t n;

	if (!b)
		return -EINVAL;
	if (!PyUnicode_Check(key))
		return -ENOENT;
	name = PyUnicode_AsUTF8AndSize(key, &n);
	if (!name)
		return -EINVAL;
	/* No array's name has a NUL, and in C this one would end there. */
	return strlen(name) == (size_t)n ? buffer_array((struct buffer *)o, name, 0, ret) : -ENOENT;
}

static PyObject *subscript(PyObject *o, PyObject *key)
{
	struct gpushm_array *a;
	int r = find(o, key, &a);

	if (r == -ENOENT)
		PyErr_SetObject(PyExc_KeyError, key);
	if (r < 0)
		return error_raise(r);
	return (PyObject *)array_new((struct buffer *)o, a);
}

static int contains(PyObject *o, PyObject *key)
{
	struct gpushm_array *a;
	int r = find(o, key, &a);

	if (r == 0)
		gpushm_array_free(a);
	if (r == 0 || r == -ENOENT)
		return r == 0;
	error_raise(r);
	return -1;
}

enum item { ITEM_KEY, ITEM_VALUE, ITEM_PAIR };

static PyObject *item_at(struct buffer *self, size_t i, enum item what)
{
	_cleanup_(drop_object) PyObject *name = NULL, *array = NULL;
	struct gpushm_array *a;
	int r = buffer_array(self, NULL, i, &a);

	if (r < 0)
		return error_raise(r);
	name = PyUnicode_FromString(gpushm_array_name(a));
	array = (PyObject *)array_new(self, a);
	if (!name || !array)
		return NULL;
	return what == ITEM_PAIR ? PyTuple_Pack(2, name, array)
				 : Py_NewRef(what == ITEM_KEY ? name : array);
}

static PyObject *items(PyObject *o, enum item what)
{
	_cleanup_(drop_object) PyObject *list = NULL;
	struct gpushm_buffer *b = opened(o);
	size_t n = b ? gpushm_buffer_arrays(b) : 0;

	list = b ? PyList_New(0) : NULL;
	for (size_t i = 0; list && i < n; i++) {
		_cleanup_(drop_object) PyObject *one = item_at((struct buffer *)o, i, what);

		if (!one || PyList_Append(list, one) < 0)
			return NULL;
	}
	return take_ptr(list);
}

static PyObject *keys(PyObject *o, PyObject *unused)
{
	return items(o, ITEM_KEY);
}

static PyObject *values(PyObject *o, PyObject *unused)
{
	return items(o, ITEM_VALUE);
}

static PyObject *pairs(PyObject *o, PyObject *unused)
{
	return items(o, ITEM_PAIR);
}

static PyObject *iterate(PyObject *o)
{
	_cleanup_(drop_object) PyObject *list = items(o, ITEM_KEY);

	return list ? PyObject_GetIter(list) : NULL;
}

static PyObject *get(PyObject *o, PyObject *args)
{
	PyObject *key, *otherwise = Py_None;
	struct gpushm_array *a;
	int r;

	if (!PyArg_ParseTuple(args, "O|O:get", &key, &otherwise))
		return NULL;
	r = find(o, key, &a);
	if (r == -ENOENT)
		return Py_NewRef(otherwise);
	return r < 0 ? error_raise(r) : (PyObject *)array_new((struct buffer *)o, a);
}

/* ---- methods ---- */

static PyObject *close_buffer(PyObject *o, PyObject *unused)
{
	return buffer_close((struct buffer *)o) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *enter(PyObject *o, PyObject *unused)
{
	return opened(o) ? Py_NewRef(o) : NULL;
}

static PyObject *leave(PyObject *o, PyObject *args)
{
	return buffer_leave((struct buffer *)o) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *publish(PyObject *o, PyObject *args)
{
	const char *state = "sealed";

	if (!PyArg_ParseTuple(args, "|s:publish", &state) ||
	    buffer_publish((struct buffer *)o, state) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *attr(PyObject *o, PyObject *args)
{
	struct gpushm_buffer *b = opened(o);
	PyObject *otherwise = Py_None;
	const void *value;
	const char *key;
	size_t size;

	if (!b || !PyArg_ParseTuple(args, "s|O:attr", &key, &otherwise))
		return NULL;
	if (gpushm_buffer_attr(b, key, &value, &size) < 0)
		return Py_NewRef(otherwise);
	return PyBytes_FromStringAndSize(value, (Py_ssize_t)size);
}

static PyObject *array_over(PyObject *o, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "shape", "dtype", "strides", "offset", NULL };
	PyObject *shape, *dtype, *strides = Py_None;
	uint64_t offset = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$OO&:array", (char **)names, &shape,
					 &dtype, &strides, args_u64, &offset) ||
	    !alive(o))
		return NULL;
	return view_over((struct buffer *)o, dtype, shape, strides, offset);
}

static PyMethodDef methods[] = {
	{ "keys", keys, METH_NOARGS,
	  "keys($self, /)\n--\n\nThe arrays' names, in the order of their making." },
	{ "values", values, METH_NOARGS, "values($self, /)\n--\n\nThe arrays." },
	{ "items", pairs, METH_NOARGS, "items($self, /)\n--\n\nThe names with their arrays." },
	{ "get", get, METH_VARARGS,
	  "get($self, name, default=None, /)\n--\n\n"
	  "The array of that name, or the default." },
	{ "close", close_buffer, METH_NOARGS,
	  "close($self, /)\n--\n\n"
	  "Waits for this process's work on the GPU, unmaps the buffer and gives it back.\n"
	  "InUse, a BufferError, where arrays, tensors or memoryviews are alive: it names\n"
	  "them, and nothing happened. A second close does nothing. Asks the daemon, without\n"
	  "the GIL." },
	{ "publish", publish, METH_VARARGS,
	  "publish($self, state='sealed', /)\n--\n\n"
	  "Lets others open it: 'sealed', never written again, by this process neither; or\n"
	  "'shared'. Waits for the GPU work of the current context. Errors: StateError\n"
	  "(published before), InUse (writable views would outlive the sealing), DaemonGone." },
	{ "attr", attr, METH_VARARGS,
	  "attr($self, key, default=None, /)\n--\n\n"
	  "The creator's attribute of that key, as bytes." },
	{ "array", (PyCFunction)(void (*)(void))array_over, METH_VARARGS | METH_KEYWORDS,
	  "array($self, shape, dtype, *, strides=None, offset=0)\n--\n\n"
	  "An array over the bytes that nobody described, checked against the buffer's size;\n"
	  "strides and offset in bytes. Errors: LayoutError, BadArgument." },
	{ "__enter__", enter, METH_NOARGS, NULL },
	{ "__exit__", leave, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL }
};

static PyMemberDef members[] = { { "__weaklistoffset__", T_PYSSIZET,
				   offsetof(struct buffer, weakrefs), READONLY, NULL },
				 { NULL, 0, 0, 0, NULL } };
static PyType_Slot slots[] = { { Py_tp_doc, (void *)"A buffer as this process has it open." },
			       { Py_tp_dealloc, buffer_dealloc },
			       { Py_tp_methods, methods },
			       { Py_tp_getset, getters },
			       { Py_tp_members, members },
			       { Py_tp_iter, iterate },
			       { Py_mp_length, length },
			       { Py_mp_subscript, subscript },
			       { Py_sq_contains, contains },
			       { 0, NULL } };
static PyType_Spec spec = { .name = "gpushm._core.Buffer",
			    .basicsize = sizeof(struct buffer),
			    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
				     Py_TPFLAGS_DISALLOW_INSTANTIATION,
			    .slots = slots };

int buffer_type_init(PyObject *module)
{
	types.buffer = types_add(module, &spec);
	return types.buffer ? 0 : -1;
}
