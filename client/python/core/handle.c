/* SPDX-License-Identifier: MIT
 *
 * What gpushm._handle and gpushm._create need of gpushm_handle.h.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/module.h"

#include "client/gpushm_handle.h"
#include "client/gpushm_private.h"

PyObject *module_handle_bytes(PyObject *module, PyObject *o)
{
	bool whole = PyObject_TypeCheck(o, types.buffer);
	struct array *a = whole ? NULL : (struct array *)o;
	struct buffer *b = whole ? (struct buffer *)o : a->buffer;
	char bytes[GPUSHM_HANDLE_MAX];
	size_t n;
	int r;

	if (whole ? !buffer_is_open(b) : !array_is_open(a))
		return NULL;
	if (b->stream)
		return PyErr_Format(
			PyExc_TypeError,
			"\"%U\" is a stream, whose frames can't be sent: follow() takes "
			"them",
			b->name);
	r = whole ? gpushm_buffer_handle(b->buffer, bytes, sizeof(bytes), &n)
		  : gpushm_array_handle(a->array, bytes, sizeof(bytes), &n);
	return r < 0 ? error_raise(r) : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)n);
}

PyObject *module_read_handle(PyObject *module, PyObject *o)
{
	struct gpushm_private_handle h;
	const struct gpushm_array_spec *a = &h.spec;
	_cleanup_(drop_object) PyObject *layout = NULL;
	Py_ssize_t n;
	char *bytes;
	int r;

	if (PyBytes_AsStringAndSize(o, &bytes, &n) < 0)
		return NULL;
	r = gpushm_private_read_handle(bytes, (size_t)n, &h);
	if (r < 0)
		return error_raise(r);
	if (h.is_buffer)
		layout = Py_NewRef(Py_None);
	else
		layout = Py_BuildValue("zNzNNK", h.fields_in_table ? a->name : NULL,
				       dtype_name(a->dtype), *a->descr ? a->descr : NULL,
				       shape_tuple(a->shape, a->ndim),
				       a->strides ? shape_tuple(a->strides, a->ndim)
						  : Py_NewRef(Py_None),
				       (unsigned long long)a->offset);
	return layout ? Py_BuildValue("sKszKkO", h.name, (unsigned long long)h.id,
				      h.copy_on_write		 ? "c"
				      : h.access == GPUSHM_WRITE ? "r+"
								 : "r",
				      *h.socket ? h.socket : NULL, (unsigned long long)h.size,
				      (unsigned long)h.uid, layout)
		      : NULL;
}

PyObject *module_pin(PyObject *module, PyObject *args)
{
	unsigned long long address, size;
	void *there = NULL;
	int mapped, r;

	if (!PyArg_ParseTuple(args, "KKp:_pin", &address, &size, &mapped))
		return NULL;
	WITHOUT_GIL(
		r = size ? gpushm_pin((void *)address, size, mapped ? GPUSHM_PIN_MAPPED : 0, &there)
			 : gpushm_unpin((void *)address));
	return r < 0 ? error_raise(r) : object_address(there);
}
