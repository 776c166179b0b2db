/* SPDX-License-Identifier: MIT
 *
 * What a program gives a frame beside its arrays. Bytes are passed on as they are; gpushm._meta
 * makes CBOR of a dict, of the shapes of arrays, and of bytes that begin as our CBOR does.
 */
#include "client/python/core/meta.h"

#include "proto/base/cbor.h"

/* The bytes of a value that is no dict; a new reference. */
static PyObject *bytes_from(PyObject *value)
{
	PyObject *bytes;
	Py_buffer view;

	if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			error_python(PyExc_TypeError,
				     "a frame's meta is a dict, bytes or None, not %R",
				     (PyObject *)Py_TYPE(value));
		return NULL;
	}
	bytes = PyBytes_FromStringAndSize(view.buf, view.len);
	PyBuffer_Release(&view);
	return bytes;
}

static bool is_cbor(PyObject *bytes)
{
	return cbor_begins(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
}

int meta_encode(PyObject *value, PyObject *shapes, struct meta *ret)
{
	_cleanup_(drop_object) PyObject *own = NULL, *bytes = NULL;
	bool is_none = !value || value == Py_None;

	ret->n = 0;
	if (is_none && !shapes)
		return 0;
	own = is_none		    ? Py_NewRef(Py_None)
	      : PyDict_Check(value) ? Py_NewRef(value)
				    : bytes_from(value);
	if (!own)
		return -1;
	bytes = PyBytes_Check(own) && !shapes && !is_cbor(own)
			? Py_NewRef(own)
			: object_call(types.meta_module, "encode", "(OO)", own,
				      shapes ? shapes : Py_None);
	if (!bytes)
		return -1;
	ret->n = (size_t)PyBytes_Size(bytes);
	if (ret->n <= sizeof(ret->bytes)) {
		memcpy(ret->bytes, PyBytes_AsString(bytes), ret->n);
		return 0;
	}
	return error_refuse(
		ERROR_ARGUMENT, EINVAL,
		"the frame's meta%s needs %zu bytes, and a frame has %d: use shorter keys, or "
		"put it into an array of the stream",
		shapes ? ", with the shapes of its arrays," : "", ret->n, GPUSHM_META_MAX);
}

int meta_decode(const struct meta *m, PyObject **ret_value, PyObject **ret_shapes)
{
	_cleanup_(drop_object) PyObject *bytes =
		PyBytes_FromStringAndSize((const char *)m->bytes, (Py_ssize_t)m->n);
	_cleanup_(drop_object) PyObject *pair = NULL;

	*ret_shapes = NULL;
	if (bytes && is_cbor(bytes)) {
		pair = object_call(types.meta_module, "decode", "(O)", bytes);
		if (!pair && PyErr_ExceptionMatches(PyExc_MemoryError))
			return -1;
		/* Another process has written it, and it may be no CBOR that is known here. */
		PyErr_Clear();
	}
	if (!pair) {
		*ret_value = take_ptr(bytes);
		return *ret_value ? 0 : -1;
	}
	*ret_value = Py_NewRef(PyTuple_GetItem(pair, 0));
	if (PyTuple_GetItem(pair, 1) != Py_None)
		*ret_shapes = Py_NewRef(PyTuple_GetItem(pair, 1));
	return 0;
}
