/* SPDX-License-Identifier: MIT
 *
 * The type gpushm.Array: its getters and methods. No getter asks the daemon. A closed array still
 * has buffer, name and closed; its other attributes raise ValueError.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/module.h"

static struct buffer *buffer_of(PyObject *o)
{
	return ((struct array *)o)->buffer;
}

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
GETTER(device_ptr, buffer_address(buffer_of(o), gpushm_array_device_ptr(a)))
GETTER(host_ptr, buffer_address(buffer_of(o), gpushm_array_host_ptr(a)))
GETTER(owns_buffer, PyBool_FromLong(buffer_of(o)->owner == (struct array *)o))
OF_ARRAY(is_c_contiguous, PyObject, PyBool_FromLong(gpushm_array_is_c_contiguous(a)))
OF_ARRAY(is_f_contiguous, PyObject, PyBool_FromLong(gpushm_array_is_f_contiguous(a)))

static PyObject *get_dtype(PyObject *o, void *unused)
{
	_cleanup_(drop_object) PyObject *name = get_dtype_name(o, NULL),
					*descr = name ? get_descr(o, NULL) : NULL;

	return descr ? object_call(types.dtype_module, "decode", "(OO)", name, descr) : NULL;
}

/* The buffer's attribute whose name is in the closure. */
static PyObject *get_of_buffer(PyObject *o, void *closure)
{
	return PyObject_GetAttrString((PyObject *)buffer_of(o), closure);
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
	{ "name", get_of_buffer, NULL, "The buffer's name.", (void *)"name" },
	{ "pool", get_of_buffer, NULL, "The name of the buffer's pool.", (void *)"pool" },
	{ "kind", get_of_buffer, NULL, "The pool's kind: 'host', 'pinned', 'vmm' or 'mempool'.",
	  (void *)"kind" },
	{ "state", get_of_buffer, NULL, "The buffer's state: 'filling', 'sealed' or 'shared'.",
	  (void *)"state" },
	{ "dirty", get_of_buffer, NULL,
	  "Whether a writer of the buffer had died when it was opened.", (void *)"dirty" },
	{ "lost", get_of_buffer, NULL, "Whether a restarted daemon no longer knows the buffer.",
	  (void *)"lost" },
	{ "access", get_of_buffer, NULL,
	  "How this process has the buffer open: 'r', 'r+', or 'c' for copy-on-write.",
	  (void *)"access" },
	{ "readonly", get_of_buffer, NULL, "Whether this process may not write to it.",
	  (void *)"readonly" },
	{ "device", get_of_buffer, NULL,
	  "This process's ordinal of the GPU; None: host or pinned memory.", (void *)"device" },
	{ "anonymous", get_of_buffer, NULL,
	  "Whether this process created its buffer without a name.", (void *)"anonymous" },
	{ "away", get_of_buffer, NULL, "Whether this process has suspended its buffer.",
	  (void *)"away" },
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

static PyObject *discard(PyObject *o, PyObject *unused)
{
	return pybuffer_discard((PyObject *)buffer_of(o), unused);
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

static PyObject *publish(PyObject *o, PyObject *args)
{
	return opened(o) ? pybuffer_publish((PyObject *)buffer_of(o), args) : NULL;
}

static PyObject *publish_as(PyObject *o, PyObject *args, PyObject *kwargs)
{
	return opened(o) ? buffer_publish_as((PyObject *)buffer_of(o), args, kwargs) : NULL;
}

static PyObject *suspend(PyObject *o, PyObject *args, PyObject *kwargs)
{
	return opened(o) ? buffer_suspend(buffer_of(o), args, kwargs) : NULL;
}

static PyObject *resume(PyObject *o, PyObject *args, PyObject *kwargs)
{
	return opened(o) ? buffer_resume(buffer_of(o), args, kwargs) : NULL;
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
	{ "discard", discard, METH_NOARGS,
	  "discard($self, /)\n--\n\n"
	  "Closes a buffer that is not published, without UnpublishedWarning: its contents are\n"
	  "dropped, and its name is free. A closed buffer stays as it is. Errors: StateError\n"
	  "(published), InUse." },
	{ "publish", publish, METH_VARARGS,
	  "publish($self, state='sealed', /)\n--\n\n"
	  "Lets others open the buffer: 'sealed' means that nobody writes to it any more, this\n"
	  "process included; 'shared' allows writing. First waits for all work that this\n"
	  "process has queued, on any stream of any library, on the GPU that has the memory\n"
	  "mapped; and on the thread's current GPU for the current streams of PyTorch, CuPy and\n"
	  "Numba. Errors: StateError (published before), InUse (writable views would outlive\n"
	  "the sealing), DaemonGone." },
	{ "publish_as", KEYWORDS(publish_as), METH_VARARGS | METH_KEYWORDS,
	  "publish_as($self, name, state='sealed', *, replace=False)\n--\n\n"
	  "publish() under another name than the buffer was created with, in one step. replace:\n"
	  "a buffer that has the name loses it; processes that have that one open keep it.\n"
	  "Errors: Exists, and as publish()." },
	{ "suspend", KEYWORDS(suspend), METH_VARARGS | METH_KEYWORDS,
	  "suspend($self, *, idle=False)\n--\n\n"
	  "Lets go of the buffer's memory until resume(): see Buffer.suspend()." },
	{ "resume", KEYWORDS(resume), METH_VARARGS | METH_KEYWORDS,
	  "resume($self, timeout=None)\n--\n\n"
	  "Maps the buffer's memory again, at the same addresses; 0, 1 or 2: see\n"
	  "Buffer.resume()." },
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
	  "_read_into($self, out, stream=None, /)\n--\n\n"
	  "Copies to an object that has the buffer protocol, with this shape and item size or\n"
	  "with as many contiguous bytes." },
	{ "_write_from", memory_write_from, METH_VARARGS,
	  "_write_from($self, data, stream=None, /)\n--\n\nThe same in the other direction." },
	{ "_wait_for_others", wait_for_others, METH_O,
	  "_wait_for_others($self, stream, /)\n--\n\n"
	  "Waits for copies that this process has queued on other streams." },
	{ "_span", memory_span, METH_NOARGS,
	  "_span($self, /)\n--\n\n"
	  "(an array of uint8 over all bytes from the lowest element to the highest, where\n"
	  "element [0, 0, ...] begins in it): what numpy.ndarray() gets." },
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
static PyType_Spec spec = { .name = "gpushm._core.Array",
			    .basicsize = sizeof(struct array),
			    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
				     Py_TPFLAGS_DISALLOW_INSTANTIATION,
			    .slots = slots };

const struct type_row array_row = { &spec, &types.array, NULL };
