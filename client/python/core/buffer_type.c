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

	return buffer_is_alive(self) ? self->buffer : NULL;
}

/* ---- getters ---- */

/* The function that reads an attribute of a buffer `b` that is alive. */
#define OF(name, value)                                  \
	static PyObject *name(PyObject *o, void *unused) \
	{                                                \
		struct gpushm_buffer *b = alive(o);      \
                                                         \
		return b ? (value) : NULL;               \
	}

static PyObject *ordinal_or_none(int n)
{
	return n < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(n);
}

static const char *access_of(const struct gpushm_buffer *b)
{
	if (gpushm_buffer_copy_on_write(b) == 1)
		return "c";
	return gpushm_buffer_access(b) == GPUSHM_WRITE ? "r+" : "r";
}

OF(OfBuffer_pool, PyUnicode_FromString(gpushm_buffer_pool(b)))
OF(OfBuffer_kind, PyUnicode_FromString(kind_word(gpushm_buffer_kind(b))))
OF(OfBuffer_state, PyUnicode_FromString(state_word(gpushm_buffer_state(b))))
OF(OfBuffer_access, PyUnicode_FromString(access_of(b)))
OF(OfBuffer_readonly,
   PyBool_FromLong(buffer_of(o)->sealing || gpushm_buffer_access(b) != GPUSHM_WRITE))
OF(OfBuffer_dirty, PyBool_FromLong(gpushm_buffer_dirty(b)))
OF(OfBuffer_lost, PyBool_FromLong(gpushm_buffer_lost(b)))
OF(OfBuffer_device, ordinal_or_none(gpushm_buffer_device(b)))
OF(OfBuffer_away, PyBool_FromLong(gpushm_buffer_suspended(b)))
OF(Buffer_id, PyLong_FromUnsignedLongLong(gpushm_buffer_id(b)))
OF(Buffer_nbytes, PyLong_FromUnsignedLongLong(gpushm_buffer_bytes(b)))
OF(Buffer_digest, PyLong_FromUnsignedLongLong(gpushm_buffer_digest(b)))
OF(Buffer_device_ptr, buffer_address((struct buffer *)o, gpushm_buffer_device_ptr(b)))
OF(Buffer_host_ptr, buffer_address((struct buffer *)o, gpushm_buffer_host_ptr(b)))
OF(Buffer_wanted, PyBool_FromLong(gpushm_wanted(b) == 1))
OF(Buffer_starts, Py_BuildValue("(NN)", object_address(((struct buffer *)o)->starts[0]),
				object_address(((struct buffer *)o)->starts[1])))

GETTER(Buffer_closed, struct buffer, PyBool_FromLong(!self->buffer || self->left))
GETTER(Buffer_connection, struct buffer, Py_NewRef((PyObject *)self->connection))

static PyObject *OfBuffer_name(PyObject *o, void *unused)
{
	return Py_NewRef(buffer_of(o)->name);
}

static PyObject *OfBuffer_anonymous(PyObject *o, void *unused)
{
	return PyBool_FromLong(buffer_of(o)->anonymous);
}

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

static PyObject *Buffer_keys(PyObject *o, PyObject *unused)
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

/* ---- methods ---- */

static PyObject *Buffer_close(PyObject *o, PyObject *unused)
{
	return object_none(buffer_close((struct buffer *)o));
}

static PyObject *Buffer_enter(PyObject *o, PyObject *unused)
{
	return opened(o) ? Py_NewRef(o) : NULL;
}

static PyObject *Buffer_exit(PyObject *o, PyObject *args)
{
	return object_none(buffer_leave((struct buffer *)o, args_first(args)));
}

static PyObject *Buffer_use(PyObject *o, PyObject *unused)
{
	struct gpushm_buffer *b = alive(o);

	return b ? object_none(error_result(gpushm_use(b))) : NULL;
}

static PyObject *Buffer_touch(PyObject *o, PyObject *unused)
{
	struct gpushm_buffer *b = alive(o);

	if (!b)
		return NULL;
	gpushm_use(b);
	return PyBool_FromLong(gpushm_buffer_suspended(b) == 1);
}

static PyObject *Buffer_attr(PyObject *o, PyObject *args)
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

static PyObject *Buffer_array(PyObject *o, PyObject *args, PyObject *kwargs)
{
	PyObject *shape, *dtype, *strides = Py_None;
	uint64_t offset = 0;

	if (!args_parse(args, kwargs, Buffer_array, "OO|$OO&:array", &shape, &dtype, &strides,
			u64_arg, &offset) ||
	    !alive(o))
		return NULL;
	return view_over((struct buffer *)o, dtype, shape, strides, offset);
}

static PyObject *Buffer_describe(PyObject *o, PyObject *arrays)
{
	struct buffer *self = (struct buffer *)o;
	_cleanup_(layouts_done) struct layouts l = { 0 };
	_cleanup_(drop_object) PyObject *items = PyMapping_Items(arrays);
	int r;

	if (!items || !layouts_arg(items, &l) || !buffer_is_open(self))
		return NULL;
	buffer_hold(self);
	WITHOUT_GIL(r = gpushm_describe(self->buffer, l.specs, l.n));
	return object_none(buffer_release(self, r));
}

static PyType_Slot common_slots[] = { SLOTS_OfBuffer, { 0, NULL } };
PyTypeObject *of_buffer_type; /* owned, for as long as the process lives */

struct type_row of_buffer_row = { TYPE_SPEC("gpushm._core._OfBuffer", PyObject, Py_TPFLAGS_BASETYPE,
					    common_slots),
				  &of_buffer_type, NULL };

static PyType_Slot slots[] = { SLOTS_Buffer,
			       { Py_tp_dealloc, buffer_dealloc },
			       { Py_tp_traverse, buffer_traverse },
			       { Py_tp_members, object_members },
			       { Py_tp_iter, object_iterate },
			       { Py_mp_length, length },
			       { Py_mp_subscript, subscript },
			       { Py_sq_contains, contains },
			       { 0, NULL } };

struct type_row buffer_row = { TYPE_SPEC("gpushm._core.Buffer", struct buffer,
					 Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots),
			       &types.buffer, &of_buffer_type };
