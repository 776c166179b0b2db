/* SPDX-License-Identifier: MIT
 *
 * The type gpushm.Array: its getters and methods; buffer_type.c has those that a Buffer has, too.
 * No getter asks the daemon. A closed array still has buffer, name and closed; its other attributes
 * raise ValueError.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/module.h"

/* The open array of an object. */
static struct gpushm_array *opened(PyObject *o)
{
	struct array *self = (struct array *)o;

	return array_is_open(self) ? self->array : NULL;
}

/* A function of an open array `a`: a getter, or a method without arguments. */
#define GETTER(name, value) OF_ARRAY(get_##name, void, value)
#define OF_ARRAY(name, unused_type, value)                      \
	static PyObject *name(PyObject *o, unused_type *unused) \
	{                                                       \
		struct gpushm_array *a = opened(o);             \
                                                                \
		return a ? (value) : NULL;                      \
	}

static PyObject *text_or_none(const char *text)
{
	return text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
}

GETTER(shape, shape_tuple(gpushm_array_shape(a), gpushm_array_ndim(a)))
GETTER(strides, shape_tuple(gpushm_array_strides(a), gpushm_array_ndim(a)))
GETTER(ndim, PyLong_FromLong(gpushm_array_ndim(a)))
GETTER(size, PyLong_FromLongLong(gpushm_array_size(a)))
GETTER(nbytes, PyLong_FromUnsignedLongLong(gpushm_array_nbytes(a)))
GETTER(itemsize, PyLong_FromSsize_t(array_itemsize((struct array *)o)))
GETTER(offset, PyLong_FromUnsignedLongLong(gpushm_array_offset(a)))
GETTER(array_name, PyUnicode_FromString(gpushm_array_name(a)))
GETTER(dtype_name, dtype_name(gpushm_array_dtype(a)))
GETTER(descr, text_or_none(gpushm_array_descr(a)))
GETTER(device_ptr, buffer_address(((struct array *)o)->buffer, gpushm_array_device_ptr(a)))
GETTER(host_ptr, buffer_address(((struct array *)o)->buffer, gpushm_array_host_ptr(a)))
GETTER(owns_buffer, PyBool_FromLong(((struct array *)o)->buffer->owner == (struct array *)o))
OF_ARRAY(is_c_contiguous, PyObject, PyBool_FromLong(gpushm_array_is_c_contiguous(a)))
OF_ARRAY(is_f_contiguous, PyObject, PyBool_FromLong(gpushm_array_is_f_contiguous(a)))

static PyObject *get_dtype(PyObject *o, void *unused)
{
	_cleanup_(drop_object) PyObject *name = get_dtype_name(o, NULL),
					*descr = name ? get_descr(o, NULL) : NULL;

	return descr ? object_call(types.dtype_module, "decode", "(OO)", name, descr) : NULL;
}

static PyObject *get_closed(PyObject *o, void *unused)
{
	struct array *self = (struct array *)o;

	return PyBool_FromLong(!self->array || (self->buffer->left && self->buffer->owner == self));
}

static PyGetSetDef getters[] = {
	{ "shape", get_shape, NULL, "Elements along each axis.", NULL },
	{ "strides", get_strides, NULL,
	  "Bytes from one element to the next along each axis; zeros for types narrower than\n"
	  "a byte.",
	  NULL },
	{ "ndim", get_ndim, NULL, "The number of axes.", NULL },
	{ "size", get_size, NULL, "The number of elements.", NULL },
	{ "nbytes", get_nbytes, NULL,
	  "Bytes of all elements; those of packed types are rounded up.", NULL },
	{ "itemsize", get_itemsize, NULL, "Bytes of an element; 0 for types narrower than a byte.",
	  NULL },
	{ "offset", get_offset, NULL, "Bytes from the buffer's start to the first element.", NULL },
	{ "dtype", get_dtype, NULL,
	  "A numpy.dtype, with ml_dtypes also for bfloat16 and float8; its name where NumPy\n"
	  "has none.",
	  NULL },
	{ "dtype_name", get_dtype_name, NULL,
	  "The dtype's name: 'float32', 'bfloat16', 'record40'.", NULL },
	{ "descr", get_descr, NULL,
	  "A record's fields as NumPy describes them, as text; else None.", NULL },
	{ "typestr", exchange_typestr, NULL, "NumPy's typestr, '<f4'; None where there is none.",
	  NULL },
	{ "array_name", get_array_name, NULL,
	  "Its name in the buffer; '' is the buffer's own array.", NULL },
	{ "device_ptr", get_device_ptr, NULL,
	  "The address of element [0, 0, ...] for a GPU, as an int; None: no GPU reaches\n"
	  "it.",
	  NULL },
	{ "host_ptr", get_host_ptr, NULL,
	  "The address of element [0, 0, ...] for the CPU, as an int; None: the CPU does\n"
	  "not reach it.",
	  NULL },
	{ "closed", get_closed, NULL, "Whether it is closed.", NULL },
	{ "owns_buffer", get_owns_buffer, NULL,
	  "Whether close() of this array closes the buffer: that of open() or create().", NULL },
	{ "T", view_transposed, NULL, "A view with its axes reversed.", NULL },
	{ "__cuda_array_interface__", exchange_cai, NULL,
	  "The CUDA Array Interface, version 3; AttributeError for host memory and float8. It\n"
	  "does not keep the array open: see close().",
	  NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

/* ---- methods ---- */

static PyObject *close_array(PyObject *o, PyObject *unused)
{
	return object_none(array_close((struct array *)o));
}

static PyObject *enter(PyObject *o, PyObject *unused)
{
	return opened(o) ? Py_NewRef(o) : NULL;
}

static PyObject *leave(PyObject *o, PyObject *args)
{
	struct array *self = (struct array *)o;
	bool owner = self->array && self->buffer->owner == self;

	return object_none(owner ? buffer_leave(self->buffer, args_first(args))
				 : array_close(self));
}

static PyObject *wait_for_others(PyObject *o, PyObject *stream)
{
	struct stream s;

	if (!opened(o) || stream_from(stream, &s) < 0 ||
	    order_wait(array_order((struct array *)o), s.handle) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static Py_ssize_t length(PyObject *o)
{
	struct gpushm_array *a = opened(o);

	if (!a)
		return -1;
	if (gpushm_array_ndim(a) > 0)
		return (Py_ssize_t)gpushm_array_dim(a, 0);
	return error_python(PyExc_TypeError, "a scalar has no length");
}

static PyMethodDef methods[] = {
	{ "close", close_array, METH_NOARGS,
	  "close($self, /)\n--\n\n"
	  "Closes a view; of the array that open() or create() returned: closes the buffer.\n"
	  "Raises InUse, a BufferError, and changes nothing while views, tensors or\n"
	  "memoryviews are alive; the message names them. A second close does nothing. Waits\n"
	  "for this process's work on the GPU, without the GIL.\n\n"
	  "The end of a with block also closes the views. Tensors and memoryviews keep the\n"
	  "buffer open, with a ResourceWarning, and the last of them closes it.\n\n"
	  "Users of the CUDA Array Interface are not counted, and their address is invalid\n"
	  "after either: finish using it first, or use from_dlpack()." },
	{ "reshape", KEYWORDS(view_reshape), METH_VARARGS | METH_KEYWORDS,
	  "reshape($self, *shape, order='C')\n--\n\n"
	  "A view of another shape; one length may be -1. Errors: BadArgument (sizes differ),\n"
	  "NotSupported (it would need a copy)." },
	{ "ravel", KEYWORDS(view_ravel), METH_VARARGS | METH_KEYWORDS,
	  "ravel($self, order='C', stream=0)\n--\n\n"
	  "A view of one axis, for each stream. NotSupported: it would need a copy." },
	{ "transpose", view_transpose, METH_VARARGS,
	  "transpose($self, *axes)\n--\n\n"
	  "A view with its axes in that order; without arguments: reversed." },
	{ "split", KEYWORDS(view_split), METH_VARARGS | METH_KEYWORDS,
	  "split($self, section, stream=0)\n--\n\n"
	  "A list of views of `section` elements each, of an array of one axis, for each\n"
	  "stream; the last view may be shorter." },
	{ "view", KEYWORDS(view_as), METH_VARARGS | METH_KEYWORDS,
	  "view($self, dtype)\n--\n\n"
	  "A view of the same bytes with another dtype. Where the item sizes differ, the last\n"
	  "axis must be contiguous and changes its length. Errors: BadArgument, NotSupported." },
	{ "is_c_contiguous", is_c_contiguous, METH_NOARGS,
	  "is_c_contiguous($self, /)\n--\n\nIn C order." },
	{ "is_f_contiguous", is_f_contiguous, METH_NOARGS,
	  "is_f_contiguous($self, /)\n--\n\nIn Fortran order." },
	{ "__dlpack__", KEYWORDS(exchange_dlpack), METH_VARARGS | METH_KEYWORDS,
	  "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
	  "A DLPack capsule, which keeps the buffer open. dl_device=(1, 0) copies an array on\n"
	  "a GPU to the host. BufferError: a record; a read-only array for a consumer of\n"
	  "DLPack before 1.0." },
	{ "__dlpack_device__", exchange_dlpack_device, METH_NOARGS,
	  "__dlpack_device__($self, /)\n--\n\n"
	  "DLPack's (type, id): 1 CPU, 2 CUDA, 3 pinned." },
	{ "_read_into", memory_read_into, METH_VARARGS,
	  "_read_into($self, out, stream=None, /)\n--\n\n" },
	{ "_write_from", memory_write_from, METH_VARARGS,
	  "_write_from($self, data, stream=None, /)\n--\n\n" },
	{ "_wait_for_others", wait_for_others, METH_O,
	  "_wait_for_others($self, stream, /)\n--\n\n"
	  "Waits for copies that this process has queued on other streams." },
	{ "_span", memory_span, METH_NOARGS, "_span($self, /)\n--\n\n" },
	{ "__enter__", enter, METH_NOARGS, "__enter__($self, /)\n--\n\nThe array itself." },
	{ "__exit__", leave, METH_VARARGS,
	  "__exit__($self, /, *raised)\n--\n\nclose(), and of the views, too, where the array owns "
	  "its buffer." },
	{ NULL, NULL, 0, NULL }
};

static PyMemberDef members[] = { WEAKREFS(struct array),
				 { "buffer", T_OBJECT_EX, offsetof(struct array, buffer), READONLY,
				   "The Buffer that has this array." },
				 { NULL, 0, 0, 0, NULL } };
static PyType_Slot slots[] = { { Py_tp_doc,
				 (void *)"A typed, strided array in a buffer, or a view of one." },
			       { Py_tp_dealloc, array_dealloc },
			       { Py_tp_traverse, array_traverse },
			       { Py_tp_methods, methods },
			       { Py_tp_getset, getters },
			       { Py_tp_members, members },
			       { Py_mp_length, length },
			       { Py_mp_subscript, view_subscript },
			       { Py_bf_getbuffer, memory_get },
			       { Py_bf_releasebuffer, memory_release },
			       { 0, NULL } };

struct type_row array_row = { TYPE_SPEC("gpushm._core.Array", struct array,
					Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots),
			      &types.array, &of_buffer_type };
