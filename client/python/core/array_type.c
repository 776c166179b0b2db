/* SPDX-License-Identifier: MIT
 *
 * Array's getters and methods. Getters ask nobody. Of a closed array buffer, name and closed are
 * left; the others raise ValueError.
 */
#include "client/python/core/array_type.h"

#include "client/python/core/array.h"
#include "client/python/core/bytes.h"
#include "client/python/core/cai.h"
#include "client/python/core/copy.h"
#include "client/python/core/dlpack.h"
#include "client/python/core/dtype.h"
#include "client/python/core/error.h"
#include "client/python/core/shape.h"
#include "client/python/core/view.h"

/* The open array of an object; NULL: raised. */
static struct gpushm_array *opened(PyObject *o)
{
	struct array *self = (struct array *)o;

	return array_is_open(self) ? self->array : NULL;
}

static PyObject *get_shape(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? shape_tuple(gpushm_array_shape(a), gpushm_array_ndim(a)) : NULL;
}

static PyObject *get_strides(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? shape_tuple(gpushm_array_strides(a), gpushm_array_ndim(a)) : NULL;
}

static PyObject *get_ndim(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? PyLong_FromLong(gpushm_array_ndim(a)) : NULL;
}

static PyObject *get_size(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? PyLong_FromLongLong(gpushm_array_size(a)) : NULL;
}

static PyObject *get_nbytes(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? PyLong_FromUnsignedLongLong(gpushm_array_nbytes(a)) : NULL;
}

static PyObject *get_itemsize(PyObject *o, void *unused)
{
	return opened(o) ? PyLong_FromSsize_t(array_itemsize((struct array *)o)) : NULL;
}

static PyObject *get_offset(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? PyLong_FromUnsignedLongLong(gpushm_array_offset(a)) : NULL;
}

static PyObject *get_array_name(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? PyUnicode_FromString(gpushm_array_name(a)) : NULL;
}

static PyObject *get_dtype_name(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? dtype_name(gpushm_array_dtype(a)) : NULL;
}

static PyObject *get_descr(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);
	const char *descr = a ? gpushm_array_descr(a) : NULL;

	if (!a)
		return NULL;
	return descr ? PyUnicode_FromString(descr) : Py_NewRef(Py_None);
}

static PyObject *get_dtype(PyObject *o, void *unused)
{
	_cleanup_(drop_object) PyObject *name = get_dtype_name(o, NULL),
					*descr = get_descr(o, NULL);

	return name && descr ? object_call_python("gpushm._dtype", "decode", "(OO)", name, descr)
			     : NULL;
}

static PyObject *address(void *p)
{
	return p ? PyLong_FromVoidPtr(p) : Py_NewRef(Py_None);
}

static PyObject *get_device_ptr(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? address(gpushm_array_device_ptr(a)) : NULL;
}

static PyObject *get_host_ptr(PyObject *o, void *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? address(gpushm_array_host_ptr(a)) : NULL;
}

static PyObject *get_buffer(PyObject *o, void *unused)
{
	return Py_NewRef((PyObject *)((struct array *)o)->buffer);
}

/* Of the buffer: the attribute whose name is in the closure. */
static PyObject *get_of_buffer(PyObject *o, void *closure)
{
	return PyObject_GetAttrString((PyObject *)((struct array *)o)->buffer, closure);
}

static PyObject *get_closed(PyObject *o, void *unused)
{
	struct array *self = (struct array *)o;

	return PyBool_FromLong(!self->array || (self->buffer->left && self->buffer->owner == self));
}

static PyObject *get_owner(PyObject *o, void *unused)
{
	return opened(o) ? PyBool_FromLong(((struct array *)o)->buffer->owner == (struct array *)o)
			 : NULL;
}

static PyGetSetDef getters[] = {
	{ "shape", get_shape, NULL, "Elements along each axis.", NULL },
	{ "strides", get_strides, NULL,
	  "Bytes from one element to the next along each axis; zeros for types narrower than\n"
	  "a byte.",
	  NULL },
	{ "ndim", get_ndim, NULL, "How many axes.", NULL },
	{ "size", get_size, NULL, "Elements.", NULL },
	{ "nbytes", get_nbytes, NULL,
	  "Bytes of all elements; those of packed types are rounded up.", NULL },
	{ "itemsize", get_itemsize, NULL, "Bytes of an element; 0 for types narrower than a byte.",
	  NULL },
	{ "offset", get_offset, NULL, "Bytes from the buffer's start to the first element.", NULL },
	{ "dtype", get_dtype, NULL,
	  "A numpy.dtype, with ml_dtypes also for bfloat16 and float8; where NumPy has none:\n"
	  "its name.",
	  NULL },
	{ "dtype_name", get_dtype_name, NULL,
	  "The dtype's name: 'float32', 'bfloat16', 'record40'.", NULL },
	{ "descr", get_descr, NULL,
	  "A record's fields as NumPy describes them, as text; else None.", NULL },
	{ "typestr", cai_typestr, NULL, "NumPy's typestr, '<f4'; None where there is none.", NULL },
	{ "array_name", get_array_name, NULL,
	  "Its name in the buffer; '' is the buffer's own array.", NULL },
	{ "device_ptr", get_device_ptr, NULL,
	  "The address of element [0, 0, ...] for a GPU, as an int; None: the GPU can't reach it.",
	  NULL },
	{ "host_ptr", get_host_ptr, NULL,
	  "The address of element [0, 0, ...] for the CPU, as an int; None: the CPU can't\n"
	  "reach it.",
	  NULL },
	{ "buffer", get_buffer, NULL, "The Buffer that it is an array of.", NULL },
	{ "name", get_of_buffer, NULL, "The buffer's name.", (void *)"name" },
	{ "pool", get_of_buffer, NULL, "The name of the buffer's pool.", (void *)"pool" },
	{ "kind", get_of_buffer, NULL, "Of the pool: 'host', 'pinned', 'vmm' or 'mempool'.",
	  (void *)"kind" },
	{ "state", get_of_buffer, NULL, "Of the buffer: 'filling', 'sealed' or 'shared'.",
	  (void *)"state" },
	{ "dirty", get_of_buffer, NULL,
	  "Whether a writer of the buffer had died when it was opened.", (void *)"dirty" },
	{ "lost", get_of_buffer, NULL, "Whether a new daemon does not know the buffer any more.",
	  (void *)"lost" },
	{ "readonly", get_of_buffer, NULL, "Whether this process may not write to it.",
	  (void *)"readonly" },
	{ "device", get_of_buffer, NULL,
	  "This process's ordinal of the GPU; None: host or pinned memory.", (void *)"device" },
	{ "closed", get_closed, NULL, "Whether it is closed.", NULL },
	{ "owns_buffer", get_owner, NULL,
	  "Whether its close() closes the buffer: of open() and create().", NULL },
	{ "T", view_transposed, NULL, "The view with its axes reversed.", NULL },
	{ "__cuda_array_interface__", cai_get, NULL,
	  "The CUDA Array Interface, version 3; AttributeError for host memory and float8. It\n"
	  "keeps nothing open: see close().",
	  NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

/* ---- methods ---- */

static PyObject *close_array(PyObject *o, PyObject *unused)
{
	return array_close((struct array *)o) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *enter(PyObject *o, PyObject *unused)
{
	return opened(o) ? Py_NewRef(o) : NULL;
}

static PyObject *leave(PyObject *o, PyObject *args)
{
	struct array *self = (struct array *)o;
	bool owner = self->array && self->buffer->owner == self;
	int r = owner ? buffer_leave(self->buffer) : array_close(self);

	return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *publish(PyObject *o, PyObject *args)
{
	const char *state = "sealed";

	if (!PyArg_ParseTuple(args, "|s:publish", &state) || !opened(o) ||
	    buffer_publish(((struct array *)o)->buffer, state) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *is_c_contiguous(PyObject *o, PyObject *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? PyBool_FromLong(gpushm_array_is_c_contiguous(a)) : NULL;
}

static PyObject *is_f_contiguous(PyObject *o, PyObject *unused)
{
	struct gpushm_array *a = opened(o);

	return a ? PyBool_FromLong(gpushm_array_is_f_contiguous(a)) : NULL;
}

static Py_ssize_t length(PyObject *o)
{
	struct gpushm_array *a = opened(o);

	if (!a)
		return -1;
	if (gpushm_array_ndim(a) > 0)
		return (Py_ssize_t)gpushm_array_dim(a, 0);
	PyErr_SetString(PyExc_TypeError, "a scalar has no length");
	return -1;
}

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef methods[] = {
	{ "close", close_array, METH_NOARGS,
	  "close($self, /)\n--\n\n"
	  "Of a view: gives the view up. Of what open() or create() returned: closes the\n"
	  "buffer. InUse, a BufferError, where views, tensors or memoryviews are alive: it\n"
	  "names them, and nothing happened. A second close does nothing. Waits for this\n"
	  "process's work on the GPU, without the GIL.\n\n"
	  "The end of a with block closes the views, too; what others have of the memory\n"
	  "keeps the buffer, and the last of them closes it, after a ResourceWarning.\n\n"
	  "What took the array over its CUDA Array Interface is not seen by either, and is\n"
	  "left with an address of nothing: be done with it before, or take from_dlpack()." },
	{ "publish", publish, METH_VARARGS,
	  "publish($self, state='sealed', /)\n--\n\n"
	  "Lets others open the buffer: 'sealed', never written again, by this process\n"
	  "neither; or 'shared'. Waits for the GPU work of the current context. Errors:\n"
	  "StateError (published before), InUse (writable views would outlive the sealing),\n"
	  "DaemonGone." },
	{ "reshape", KEYWORDS(view_reshape), METH_VARARGS | METH_KEYWORDS,
	  "reshape($self, *shape, order='C')\n--\n\n"
	  "A view of another shape; one length may be -1. Errors: BadArgument (sizes differ),\n"
	  "NotSupported (it would need a copy)." },
	{ "ravel", KEYWORDS(view_ravel), METH_VARARGS | METH_KEYWORDS,
	  "ravel($self, order='C')\n--\n\n"
	  "A view of one axis. NotSupported: it would need a copy." },
	{ "transpose", view_transpose, METH_VARARGS,
	  "transpose($self, *axes)\n--\n\n"
	  "A view with its axes in another order; none given: reversed." },
	{ "split", KEYWORDS(view_split), METH_VARARGS | METH_KEYWORDS,
	  "split($self, section)\n--\n\n"
	  "A list of views of `section` elements of a one-dimensional array; the last may be\n"
	  "shorter." },
	{ "view", KEYWORDS(view_as), METH_VARARGS | METH_KEYWORDS,
	  "view($self, dtype)\n--\n\n"
	  "The same bytes as another dtype; the last axis is rescaled where the item sizes\n"
	  "differ, and must be contiguous then. Errors: BadArgument, NotSupported." },
	{ "is_c_contiguous", is_c_contiguous, METH_NOARGS,
	  "is_c_contiguous($self, /)\n--\n\nIn C order." },
	{ "is_f_contiguous", is_f_contiguous, METH_NOARGS,
	  "is_f_contiguous($self, /)\n--\n\nIn Fortran order." },
	{ "__dlpack__", KEYWORDS(dlpack_export), METH_VARARGS | METH_KEYWORDS,
	  "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
	  "A DLPack capsule, which counts as a use of the buffer. dl_device=(1, 0) copies to\n"
	  "the host what is on a GPU. BufferError: a record; a read-only array for a consumer\n"
	  "that knows no version." },
	{ "__dlpack_device__", dlpack_device, METH_NOARGS,
	  "__dlpack_device__($self, /)\n--\n\n"
	  "DLPack's (type, id): 1 CPU, 2 CUDA, 3 pinned." },
	{ "_read_into", copy_read_into, METH_VARARGS,
	  "_read_into($self, out, stream=None, /)\n--\n\n"
	  "Copies to memory of the host that has the buffer protocol, and this shape and item\n"
	  "size or as many contiguous bytes." },
	{ "_write_from", copy_write_from, METH_VARARGS,
	  "_write_from($self, data, stream=None, /)\n--\n\nThe same the other way." },
	{ "_span", bytes_span, METH_NOARGS,
	  "_span($self, /)\n--\n\n"
	  "(an array of uint8 over all bytes from the lowest element to the highest, where\n"
	  "element [0, 0, ...] begins in it): what NumPy's ndarray() is given." },
	{ "__enter__", enter, METH_NOARGS, NULL },
	{ "__exit__", leave, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL }
};

static PyMemberDef members[] = { { "__weaklistoffset__", T_PYSSIZET,
				   offsetof(struct array, weakrefs), READONLY, NULL },
				 { NULL, 0, 0, 0, NULL } };
static PyType_Slot slots[] = { { Py_tp_doc,
				 (void *)"A typed, strided array in a buffer, or a view of one." },
			       { Py_tp_dealloc, array_dealloc },
			       { Py_tp_methods, methods },
			       { Py_tp_getset, getters },
			       { Py_tp_members, members },
			       { Py_mp_length, length },
			       { Py_mp_subscript, view_subscript },
			       { Py_bf_getbuffer, bytes_get },
			       { Py_bf_releasebuffer, bytes_release },
			       { 0, NULL } };
static PyType_Spec spec = { .name = "gpushm._core.Array",
			    .basicsize = sizeof(struct array),
			    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
				     Py_TPFLAGS_DISALLOW_INSTANTIATION,
			    .slots = slots };

int array_type_init(PyObject *module)
{
	types.array = types_add(module, &spec);
	return types.array ? 0 : -1;
}
