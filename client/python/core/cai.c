/* SPDX-License-Identifier: MIT
 *
 * The dict that Numba, CuPy and others read. It has no place for an owner: whoever wraps the
 * pointer has to keep the Array, and Numba and CuPy do.
 */
#include "client/python/core/cai.h"

#include "client/python/core/error.h"
#include "client/python/core/shape.h"

PyObject *cai_typestr(PyObject *o, void *unused)
{
	struct array *self = (struct array *)o;
	char text[32];

	if (!array_is_open(self))
		return NULL;
	if (gpushm_dtype_typestr(gpushm_array_dtype(self->array), text, sizeof(text)) < 0)
		Py_RETURN_NONE;
	return PyUnicode_FromString(text);
}

/* None for C order, as the interface has it. */
static PyObject *strides_of(const struct array *self)
{
	if (gpushm_array_is_c_contiguous(self->array))
		return Py_NewRef(Py_None);
	return shape_tuple(gpushm_array_strides(self->array), gpushm_array_ndim(self->array));
}

/* The stream that a consumer has to wait for: the interface has room for one, so that copies that
 * were queued on others are waited for here. None: nothing is under way. */
static PyObject *stream_of(const struct array *self)
{
	void *last;

	if (order_last(&self->buffer->order, &last) < 0)
		return NULL;
	return last ? PyLong_FromVoidPtr(last) : Py_NewRef(Py_None);
}

/* A record's fields, as NumPy lists them; None for what is no record. */
static PyObject *descr_of(const struct array *self)
{
	const char *descr = gpushm_array_descr(self->array);

	if (!descr)
		return Py_NewRef(Py_None);
	return object_call_python("gpushm._dtype", "fields", "(s)", descr);
}

static PyObject *build(struct array *self, PyObject *typestr)
{
	_cleanup_(drop_object) PyObject *shape = NULL, *strides = NULL, *stream = NULL,
					*descr = NULL, *dict = NULL;
	void *p;

	/* They import Python's modules, and let other threads run. */
	descr = descr_of(self);
	stream = descr ? stream_of(self) : NULL;
	if (!stream || !array_is_open(self))
		return NULL;
	p = gpushm_array_size(self->array) ? gpushm_array_device_ptr(self->array) : NULL;
	shape = shape_tuple(gpushm_array_shape(self->array), gpushm_array_ndim(self->array));
	strides = strides_of(self);
	if (!shape || !strides)
		return NULL;
	dict = Py_BuildValue("{s:O,s:O,s:(KO),s:O,s:O,s:i}", "shape", shape, "typestr", typestr,
			     "data", (unsigned long long)(uintptr_t)p,
			     array_is_writable(self) ? Py_False : Py_True, "strides", strides,
			     "stream", stream, "version", 3);
	if (dict && descr != Py_None && PyDict_SetItemString(dict, "descr", descr) < 0)
		return NULL;
	return take_ptr(dict);
}

PyObject *cai_get(PyObject *o, void *unused)
{
	struct array *self = (struct array *)o;
	_cleanup_(drop_object) PyObject *typestr = NULL;

	if (!array_is_open(self))
		return NULL;
	if (!gpushm_array_device_ptr(self->array)) {
		PyErr_SetString(PyExc_AttributeError, "the array is in the host's memory, which "
						      "the CUDA Array Interface can't tell");
		return NULL;
	}
	typestr = cai_typestr(o, NULL);
	if (typestr == Py_None) {
		PyErr_SetString(PyExc_AttributeError, "the CUDA Array Interface has no name for "
						      "that dtype: __dlpack__() knows it");
		return NULL;
	}
	return typestr ? build(self, typestr) : NULL;
}
