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

/* Getters, by their names in Python. */
#define GETTERS(X)                                                                             \
	X(shape, shape_tuple(gpushm_array_shape(a), gpushm_array_ndim(a)))                     \
	X(strides, shape_tuple(gpushm_array_strides(a), gpushm_array_ndim(a)))                 \
	X(ndim, PyLong_FromLong(gpushm_array_ndim(a)))                                         \
	X(size, PyLong_FromLongLong(gpushm_array_size(a)))                                     \
	X(nbytes, PyLong_FromUnsignedLongLong(gpushm_array_nbytes(a)))                         \
	X(itemsize, PyLong_FromSsize_t(array_itemsize((struct array *)o)))                     \
	X(offset, PyLong_FromUnsignedLongLong(gpushm_array_offset(a)))                         \
	X(array_name, PyUnicode_FromString(gpushm_array_name(a)))                              \
	X(dtype_name, dtype_name(gpushm_array_dtype(a)))                                       \
	X(descr, text_or_none(gpushm_array_descr(a)))                                          \
	X(device_ptr, buffer_address(((struct array *)o)->buffer, gpushm_array_device_ptr(a))) \
	X(host_ptr, buffer_address(((struct array *)o)->buffer, gpushm_array_host_ptr(a)))     \
	X(owns_buffer, PyBool_FromLong(((struct array *)o)->buffer->owner == (struct array *)o))

GETTERS(GETTER)
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

/* A row of the table. */
#define ROW(name, value) { #name, get_##name, NULL, DOC_Array_##name, NULL },
static PyGetSetDef getters[] = { GETTERS(ROW) /* and those of other functions */
				 { "dtype", get_dtype, NULL, DOC_Array_dtype, NULL },
				 { "typestr", exchange_typestr, NULL, DOC_Array_typestr, NULL },
				 { "closed", get_closed, NULL, DOC_Array_closed, NULL },
				 { "T", view_transposed, NULL, DOC_Array_T, NULL },
				 { "__cuda_array_interface__", exchange_cai, NULL,
				   DOC_Array_cuda_array_interface, NULL },
				 { NULL, NULL, NULL, NULL, NULL } };

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
	{ "close", close_array, METH_NOARGS, DOC_Array_close },
	{ "reshape", KEYWORDS(view_reshape), DOC_Array_reshape },
	{ "ravel", KEYWORDS(view_ravel), DOC_Array_ravel },
	{ "transpose", view_transpose, METH_VARARGS, DOC_Array_transpose },
	{ "split", KEYWORDS(view_split), DOC_Array_split },
	{ "view", KEYWORDS(view_as), DOC_Array_view },
	{ "is_c_contiguous", is_c_contiguous, METH_NOARGS, DOC_Array_is_c_contiguous },
	{ "is_f_contiguous", is_f_contiguous, METH_NOARGS, DOC_Array_is_f_contiguous },
	{ "__dlpack__", KEYWORDS(exchange_dlpack), DOC_Array_dlpack },
	{ "__dlpack_device__", exchange_dlpack_device, METH_NOARGS, DOC_Array_dlpack_device },
	{ "_read_into", memory_read_into, METH_VARARGS, DOC_Array_read_into },
	{ "_write_from", memory_write_from, METH_VARARGS, DOC_Array_write_from },
	{ "_wait_for_others", wait_for_others, METH_O, DOC_Array_wait_for_others },
	{ "_span", memory_span, METH_NOARGS, DOC_Array_span },
	{ "__enter__", enter, METH_NOARGS, DOC_Closing_enter },
	{ "__exit__", leave, METH_VARARGS, DOC_Array_exit },
	{ NULL, NULL, 0, NULL }
};

static PyMemberDef members[] = { WEAKREFS(struct array),
				 { "buffer", T_OBJECT_EX, offsetof(struct array, buffer), READONLY,
				   DOC_Array_buffer },
				 { NULL, 0, 0, 0, NULL } };
static PyType_Slot slots[] = { { Py_tp_doc, (void *)DOC_Array },
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
