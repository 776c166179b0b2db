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

/* A function of an open array `a`: for an attribute, or a method without arguments. */
#define OF(name, value) OF_ARRAY(name, void, value)
#define OF_ARRAY(name, unused_type, value)                      \
	static PyObject *name(PyObject *o, unused_type *unused) \
	{                                                       \
		struct gpushm_array *a = opened(o);             \
                                                                \
		return a ? (value) : NULL;                      \
	}

OF(Array_shape, shape_tuple(gpushm_array_shape(a), gpushm_array_ndim(a)))
OF(Array_strides, shape_tuple(gpushm_array_strides(a), gpushm_array_ndim(a)))
OF(Array_ndim, PyLong_FromLong(gpushm_array_ndim(a)))
OF(Array_size, PyLong_FromLongLong(gpushm_array_size(a)))
OF(Array_nbytes, PyLong_FromUnsignedLongLong(gpushm_array_nbytes(a)))
OF(Array_itemsize, PyLong_FromSsize_t(array_itemsize((struct array *)o)))
OF(Array_offset, PyLong_FromUnsignedLongLong(gpushm_array_offset(a)))
OF(Array_array_name, PyUnicode_FromString(gpushm_array_name(a)))
OF(Array_dtype_name, dtype_name(gpushm_array_dtype(a)))
OF(Array_descr, object_text(gpushm_array_descr(a)))
OF(Array_device_ptr, buffer_address(((struct array *)o)->buffer, gpushm_array_device_ptr(a)))
OF(Array_host_ptr, buffer_address(((struct array *)o)->buffer, gpushm_array_host_ptr(a)))
OF(Array_owns_buffer, PyBool_FromLong(((struct array *)o)->buffer->owner == (struct array *)o))
OF_ARRAY(Array_is_c_contiguous, PyObject, PyBool_FromLong(gpushm_array_is_c_contiguous(a)))
OF_ARRAY(Array_is_f_contiguous, PyObject, PyBool_FromLong(gpushm_array_is_f_contiguous(a)))

static PyObject *Array_dtype(PyObject *o, void *unused)
{
	_cleanup_(drop_object) PyObject *name = Array_dtype_name(o, NULL),
					*descr = name ? Array_descr(o, NULL) : NULL;

	return descr ? object_call(types.dtype_module, "decode", "(OO)", name, descr) : NULL;
}

GETTER(Array_buffer, struct array, Py_NewRef((PyObject *)self->buffer))
GETTER(Array_closed, struct array,
       PyBool_FromLong(!self->array || (self->buffer->left && self->buffer->owner == self)))

/* ---- methods ---- */

static PyObject *Array_enter(PyObject *o, PyObject *unused)
{
	return opened(o) ? Py_NewRef(o) : NULL;
}

static PyObject *Array_exit(PyObject *o, PyObject *args)
{
	struct array *self = (struct array *)o;
	bool owner = self->array && self->buffer->owner == self;

	return owner ? object_none(buffer_leave(self->buffer, args_first(args)))
		     : Array_close(o, NULL);
}

static PyObject *Array_wait_for_others(PyObject *o, PyObject *stream)
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

static PyType_Slot slots[] = { SLOTS_Array,
			       { Py_tp_dealloc, array_dealloc },
			       { Py_tp_traverse, array_traverse },
			       { Py_tp_members, object_members },
			       { Py_mp_length, length },
			       { Py_mp_subscript, view_subscript },
			       { Py_bf_getbuffer, memory_get },
			       { Py_bf_releasebuffer, memory_release },
			       { 0, NULL } };

struct type_row array_row = { TYPE_SPEC("gpushm._core.Array", struct array,
					Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots),
			      &types.array, &of_buffer_type };
