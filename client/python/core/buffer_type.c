/* SPDX-License-Identifier: MIT
 *
 * The type gpushm.Buffer: its getters and methods, and the mapping of names to arrays; and its
 * base, which is that of gpushm.Array as well: what both say of the buffer, and do with it. No
 * getter asks the daemon. A closed buffer still has name, closed and connection; its other
 * attributes raise ValueError.
 */
#include "client/gpushm_memory.h"
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/layouts.h"
#include "client/python/core/module.h"
#include "proto/words.h"

/* The buffer, while its user may use it. */
static struct gpushm_buffer *opened(PyObject *o)
{
	struct buffer *self = (struct buffer *)o;

	return buffer_is_open(self) ? self->buffer : NULL;
}

/* The buffer, while anything keeps it: a view that outlives its with block asks it, too. */
static struct gpushm_buffer *alive(PyObject *o)
{
	struct buffer *self = buffer_of(o);

	if (!self->buffer)
		buffer_is_open(self);
	return self->buffer;
}

/* ---- getters ---- */

/* A getter of a buffer `b` that is alive. */
#define GETTER(name, value)                                    \
	static PyObject *get_##name(PyObject *o, void *unused) \
	{                                                      \
		struct gpushm_buffer *b = alive(o);            \
                                                               \
		return b ? (value) : NULL;                     \
	}

static PyObject *ordinal_or_none(int n)
{
	return n < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(n);
}

GETTER(pool, PyUnicode_FromString(gpushm_buffer_pool(b)))
GETTER(kind, PyUnicode_FromString(kind_word(gpushm_buffer_kind(b))))
GETTER(state, PyUnicode_FromString(state_word(gpushm_buffer_state(b))))
GETTER(id, PyLong_FromUnsignedLongLong(gpushm_buffer_id(b)))
GETTER(nbytes, PyLong_FromUnsignedLongLong(gpushm_buffer_bytes(b)))
GETTER(digest, PyLong_FromUnsignedLongLong(gpushm_buffer_digest(b)))
static const char *access_of(const struct gpushm_buffer *b)
{
	if (gpushm_buffer_copy_on_write(b) == 1)
		return "c";
	return gpushm_buffer_access(b) == GPUSHM_WRITE ? "r+" : "r";
}

GETTER(access, PyUnicode_FromString(access_of(b)))
GETTER(readonly, PyBool_FromLong(gpushm_buffer_access(b) != GPUSHM_WRITE))
GETTER(dirty, PyBool_FromLong(gpushm_buffer_dirty(b)))
GETTER(lost, PyBool_FromLong(gpushm_buffer_lost(b)))
GETTER(device, ordinal_or_none(gpushm_buffer_device(b)))
GETTER(device_ptr, buffer_address((struct buffer *)o, gpushm_buffer_device_ptr(b)))
GETTER(host_ptr, buffer_address((struct buffer *)o, gpushm_buffer_host_ptr(b)))
GETTER(away, PyBool_FromLong(gpushm_buffer_suspended(b)))
GETTER(wanted, PyBool_FromLong(gpushm_wanted(b) == 1))
GETTER(starts, Py_BuildValue("(NN)", object_address(((struct buffer *)o)->starts[0]),
			     object_address(((struct buffer *)o)->starts[1])))

static PyObject *get_name(PyObject *o, void *unused)
{
	return Py_NewRef(buffer_of(o)->name);
}

static PyObject *get_anonymous(PyObject *o, void *unused)
{
	return PyBool_FromLong(buffer_of(o)->anonymous);
}

static PyObject *get_closed(PyObject *o, void *unused)
{
	return PyBool_FromLong(!((struct buffer *)o)->buffer || ((struct buffer *)o)->left);
}

static PyGetSetDef common_getters[] = {
	{ "name", get_name, NULL, "The buffer's name; one that is closed has it, too.", NULL },
	{ "pool", get_pool, NULL, "The name of the buffer's pool.", NULL },
	{ "kind", get_kind, NULL, "The pool's kind: 'host', 'pinned', 'vmm' or 'mempool'.", NULL },
	{ "state", get_state, NULL, "The buffer's state: 'filling', 'sealed' or 'shared'.", NULL },
	{ "access", get_access, NULL,
	  "How this process has the buffer open: 'r', 'r+', or 'c' for copy-on-write.", NULL },
	{ "readonly", get_readonly, NULL, "Whether this process may not write to it.", NULL },
	{ "dirty", get_dirty, NULL, "Whether a writer of the buffer had died when it was opened.",
	  NULL },
	{ "lost", get_lost, NULL,
	  "Whether a restarted daemon no longer knows the buffer: its memory stays usable here,\n"
	  "but no daemon keeps it for this process.",
	  NULL },
	{ "device", get_device, NULL,
	  "This process's ordinal of the GPU; None: host or pinned memory.", NULL },
	{ "anonymous", get_anonymous, NULL,
	  "Whether this process created the buffer without a name.", NULL },
	{ "away", get_away, NULL, "Whether this process has suspended the buffer: see suspend().",
	  NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};
static PyGetSetDef getters[] = {
	{ "id", get_id, NULL, "A number that no other buffer ever has.", NULL },
	{ "nbytes", get_nbytes, NULL, "The buffer's size in bytes.", NULL },
	{ "digest", get_digest, NULL, "Of the layout: equal layouts have equal digests.", NULL },
	{ "device_ptr", get_device_ptr, NULL,
	  "The address of its start for a GPU, as an int; None: no GPU reaches it.", NULL },
	{ "host_ptr", get_host_ptr, NULL,
	  "The address of its start for the CPU, as an int; None: the CPU does not reach it.",
	  NULL },
	{ "wanted", get_wanted, NULL,
	  "Whether its memory is needed, and the processes that use it are asked to suspend\n"
	  "it. Reads a word: no system call.",
	  NULL },
	{ "_starts", get_starts, NULL, "(device_ptr, host_ptr), also while it is suspended.",
	  NULL },
	{ "closed", get_closed, NULL, "Whether it is closed.", NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

/* ---- the mapping ---- */

static Py_ssize_t length(PyObject *o)
{
	struct gpushm_buffer *b = opened(o);

	return b ? (Py_ssize_t)gpushm_buffer_arrays(b) : -1;
}

/* Returns 0 or -errno. Raises nothing for -ENOENT, which each caller handles in its own way. */
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
	/* No array's name has a NUL, at which this name would end in C. */
	return strlen(name) == (size_t)n ? buffer_array((struct buffer *)o, name, 0, ret) : -ENOENT;
}

static PyObject *subscript(PyObject *o, PyObject *key)
{
	struct gpushm_array *a;
	int r = find(o, key, &a);

	/* As of a dict: the package's subclass has it, and raises. */
	if (r == -ENOENT)
		return PyObject_CallMethod(o, "__missing__", "(O)", key);
	return array_new((struct buffer *)o, r, &a);
}

static int contains(PyObject *o, PyObject *key)
{
	struct gpushm_array *a;
	int r = find(o, key, &a);

	if (r == 0)
		gpushm_array_free(a);
	return r == 0 || r == -ENOENT ? r == 0 : error_result(r);
}

static PyObject *keys(PyObject *o, PyObject *unused)
{
	struct gpushm_buffer *b = opened(o);
	size_t n = b ? gpushm_buffer_arrays(b) : 0;
	PyObject *list = b ? PyList_New(0) : NULL;

	for (size_t i = 0; list && i < n; i++) {
		struct gpushm_array *a = NULL;
		int r = buffer_array((struct buffer *)o, NULL, i, &a);

		object_append(&list,
			      r < 0 ? error_raise(r) : PyUnicode_FromString(gpushm_array_name(a)));
		gpushm_array_free(a);
	}
	return list;
}

static PyObject *iterate(PyObject *o)
{
	_cleanup_(drop_object) PyObject *list = keys(o, NULL);

	return list ? PyObject_GetIter(list) : NULL;
}

/* ---- methods ---- */

static PyObject *close_buffer(PyObject *o, PyObject *unused)
{
	return object_none(buffer_close((struct buffer *)o));
}

static PyObject *enter(PyObject *o, PyObject *unused)
{
	return opened(o) ? Py_NewRef(o) : NULL;
}

static PyObject *leave(PyObject *o, PyObject *args)
{
	return object_none(buffer_leave((struct buffer *)o, args_first(args)));
}

static PyObject *use(PyObject *o, PyObject *unused)
{
	struct gpushm_buffer *b = alive(o);

	return b ? object_none(error_result(gpushm_use(b))) : NULL;
}

static PyObject *touch(PyObject *o, PyObject *unused)
{
	struct gpushm_buffer *b = alive(o);

	if (!b)
		return NULL;
	gpushm_use(b);
	return PyBool_FromLong(gpushm_buffer_suspended(b) == 1);
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
					 &dtype, &strides, u64_arg, &offset) ||
	    !alive(o))
		return NULL;
	return view_over((struct buffer *)o, dtype, shape, strides, offset);
}

static PyMethodDef common_methods[] = {
	{ "discard", pybuffer_discard, METH_NOARGS,
	  "discard($self, /)\n--\n\n"
	  "Closes a buffer that is not published, without UnpublishedWarning: its contents are\n"
	  "dropped, and its name is free. A closed buffer stays as it is. Errors: StateError\n"
	  "(published), InUse." },
	{ "publish", pybuffer_publish, METH_VARARGS,
	  "publish($self, state='sealed', /)\n--\n\n"
	  "Lets others open the buffer: 'sealed' means that nobody writes to it any more, this\n"
	  "process included; 'shared' allows writing. First waits for all work that this\n"
	  "process has queued, on any stream of any library, on the GPU that has the memory\n"
	  "mapped; and on the thread's current GPU for the current streams of PyTorch, CuPy and\n"
	  "Numba. Errors: StateError (published before), InUse (writable views would outlive\n"
	  "the sealing), DaemonGone." },
	{ "publish_as", KEYWORDS(buffer_publish_as), METH_VARARGS | METH_KEYWORDS,
	  "publish_as($self, name, state='sealed', *, replace=False)\n--\n\n"
	  "publish() under another name than the buffer was created with, in one step. replace:\n"
	  "a buffer that has the name loses it; processes that have that one open keep it.\n"
	  "Errors: Exists, and as publish()." },
	{ "suspend", KEYWORDS(buffer_suspend), METH_VARARGS | METH_KEYWORDS,
	  "suspend($self, *, idle=False)\n--\n\n"
	  "Lets go of the memory until resume(): unmaps it, and tells the daemon that this\n"
	  "process is away. Arrays, tensors and addresses stay; meanwhile no new ones are made,\n"
	  "and copies raise StateError. Nobody may use those that exist: a read of a NumPy\n"
	  "array or a memoryview ends the process, a kernel ends with an illegal address.\n"
	  "First waits for all work that this process has queued on the buffer's GPUs; idle:\n"
	  "none that uses the buffer is queued. A second one does nothing. Asks the daemon,\n"
	  "without the GIL. Errors: StateError (not published, or another thread copies),\n"
	  "NotSupported (a stream, a mempool, access 'c', an older daemon), DriverError." },
	{ "resume", KEYWORDS(buffer_resume), METH_VARARGS | METH_KEYWORDS,
	  "resume($self, timeout=None)\n--\n\n"
	  "Maps the memory again, at the same addresses: of the buffer that has the name now.\n"
	  "Returns 0 for the same pages, 1 for the same bytes in other memory (registrations\n"
	  "with other devices must be made anew), 2 for another buffer that has replaced it\n"
	  "and has the same arrays: tensors and captured graphs read its bytes. timeout:\n"
	  "seconds to wait for the daemon, None for set_timeout()'s limit. Does nothing if it\n"
	  "is not suspended. Asks the daemon, without the GIL. Errors: BadContents (ESTALE: the\n"
	  "new one has other arrays: close this one, and open the name), AccessDenied,\n"
	  "Timeout, StateError (the buffer is gone), OutOfMemory, PoolFull, DaemonGone; the\n"
	  "buffer stays suspended." },
	{ NULL, NULL, 0, NULL }
};
static PyType_Slot common_slots[] = {
	{ Py_tp_doc, (void *)"What a Buffer and an Array say of the buffer, and do with it." },
	{ Py_tp_methods, common_methods },
	{ Py_tp_getset, common_getters },
	{ 0, NULL }
};
PyTypeObject *of_buffer_type; /* owned, for as long as the process lives */

struct type_row of_buffer_row = { TYPE_SPEC("gpushm._core._OfBuffer", PyObject, Py_TPFLAGS_BASETYPE,
					    common_slots),
				  &of_buffer_type, NULL };

static PyMethodDef methods[] = {
	{ "keys", keys, METH_NOARGS,
	  "keys($self, /)\n--\n\nThe arrays' names, in the order of create_many()." },
	{ "close", close_buffer, METH_NOARGS,
	  "close($self, /)\n--\n\n"
	  "Waits for this process's work on the GPU, unmaps the buffer and tells the daemon,\n"
	  "without the GIL. Raises InUse, a BufferError, and changes nothing while arrays,\n"
	  "tensors or memoryviews are alive; the message names them. A second close does\n"
	  "nothing." },
	{ "use", use, METH_NOARGS,
	  "use($self, /)\n--\n\n"
	  "Says that the buffer is used now, so that its memory is the last that goes. Brings no\n"
	  "memory back: gpushm.use() does. Tells the daemon once a second at most, and waits for\n"
	  "nobody. Errors: ForkError." },
	{ "_touch", touch, METH_NOARGS,
	  "_touch($self, /)\n--\n\nuse(), also in a forked child; returns away." },
	{ "set_attrs", buffer_set_attrs, METH_O,
	  "set_attrs($self, attrs, /)\n--\n\n"
	  "Sets attributes of a buffer that is not published yet: a dict of str to bytes or str;\n"
	  "an empty value removes one. Errors: LimitReached (more than 4,096 bytes in all),\n"
	  "StateError (published)." },
	{ "describe", pybuffer_describe, METH_O,
	  "describe($self, arrays, /)\n--\n\n"
	  "Adds arrays to a buffer that is not published yet. arrays: a dict of names to\n"
	  "(shape, dtype, strides, offset), as the arguments of array(); strides None is C\n"
	  "order. Arrays may overlap. Errors: LayoutError, BadArgument, Exists (a name),\n"
	  "StateError (published)." },
	{ "attr", attr, METH_VARARGS,
	  "attr($self, key, default=None, /)\n--\n\n"
	  "The creator's attribute of that key, as bytes." },
	{ "array", KEYWORDS(array_over), METH_VARARGS | METH_KEYWORDS,
	  "array($self, shape, dtype, *, strides=None, offset=0)\n--\n\n"
	  "An array over the buffer's bytes, with a layout of the caller's that must fit into\n"
	  "the buffer; strides and offset are in bytes. Errors: LayoutError, BadArgument." },
	{ "__enter__", enter, METH_NOARGS, "__enter__($self, /)\n--\n\nThe buffer itself." },
	{ "__exit__", leave, METH_VARARGS,
	  "__exit__($self, /, *raised)\n--\n\nclose(), and of its arrays, too." },
	{ NULL, NULL, 0, NULL }
};

static PyMemberDef members[] = { WEAKREFS(struct buffer),
				 { "connection", T_OBJECT_EX, offsetof(struct buffer, connection),
				   READONLY, "The Connection that it was opened through." },
				 { NULL, 0, 0, 0, NULL } };
static PyType_Slot slots[] = { { Py_tp_doc, (void *)"A buffer as this process has it open." },
			       { Py_tp_dealloc, buffer_dealloc },
			       { Py_tp_traverse, buffer_traverse },
			       { Py_tp_methods, methods },
			       { Py_tp_getset, getters },
			       { Py_tp_members, members },
			       { Py_tp_iter, iterate },
			       { Py_mp_length, length },
			       { Py_mp_subscript, subscript },
			       { Py_sq_contains, contains },
			       { 0, NULL } };

struct type_row buffer_row = { TYPE_SPEC("gpushm._core.Buffer", struct buffer,
					 Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots),
			       &types.buffer, &of_buffer_type };
