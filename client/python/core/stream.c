/* SPDX-License-Identifier: MIT
 *
 * What a stream argument means. The protocol's word is asked for first; the others are where
 * libraries keep the pointer that have not heard of it.
 */
#include "client/python/core/stream.h"

static int from_number(PyObject *o, struct stream *ret)
{
	_cleanup_(drop_object) PyObject *number = PyNumber_Index(o);
	void *p;

	if (!number)
		return -1;
	p = PyLong_AsVoidPtr(number);
	if (PyErr_Occurred())
		return -1;
	/* 1 and 2 are names of default streams; another number may be of any stream's, or was. */
	*ret = (struct stream){ .given = p != NULL, .handle = p, .lasts = (uintptr_t)p <= 2 };
	return 0;
}

/* (0, pointer), as an attribute or as what a method returns: both have been specified. */
static int from_protocol(PyObject *told, struct stream *ret)
{
	_cleanup_(drop_object) PyObject *pair =
		PyCallable_Check(told) ? PyObject_CallNoArgs(told) : Py_NewRef(told);
	_cleanup_(drop_object) PyObject *row = pair ? PySequence_Tuple(pair) : NULL;

	if (!row)
		return -1;
	if (PyTuple_Size(row) < 2) {
		PyErr_SetString(PyExc_TypeError, "__cuda_stream__ gives (version, pointer)");
		return -1;
	}
	if (from_number(PyTuple_GetItem(row, 1), ret) < 0)
		return -1;
	/* A stream that was named is meant, the default one too. */
	ret->given = true;
	return 0;
}

/* *ret_has: whether o has that attribute. */
static int from_attribute(PyObject *o, const char *name, struct stream *ret, bool *ret_has)
{
	_cleanup_(drop_object) PyObject *value = NULL, *inner = NULL;
	int r;

	*ret_has = PyObject_HasAttrString(o, name);
	if (!*ret_has)
		return 0;
	value = PyObject_GetAttrString(o, name);
	if (!value)
		return -1;
	if (strcmp(name, "__cuda_stream__") == 0)
		return from_protocol(value, ret);
	/* Numba's is a ctypes.c_void_p, whose value is None for the default stream. */
	if (PyObject_HasAttrString(value, "value")) {
		inner = PyObject_GetAttrString(value, "value");
		if (!inner)
			return -1;
		if (inner == Py_None) {
			*ret = (struct stream){ .given = true };
			return 0;
		}
	}
	r = from_number(inner ? inner : value, ret);
	ret->given = r == 0;
	return r;
}

int stream_from(PyObject *o, struct stream *ret)
{
	static const char *const names[] = { "__cuda_stream__", "cuda_stream", "ptr", "handle" };
	bool has = false;
	int r;

	*ret = (struct stream){ 0 };
	if (!o || o == Py_None)
		return 0;
	if (PyIndex_Check(o))
		return from_number(o, ret);
	for (size_t i = 0; i < array_size(names); i++) {
		r = from_attribute(o, names[i], ret, &has);
		if (!has)
			continue;
		ret->lasts = true;
		ret->object = o;
		return r;
	}
	PyErr_Format(PyExc_TypeError,
		     "a stream is an int, an object with __cuda_stream__, or a stream of CuPy, "
		     "PyTorch or "
		     "Numba, not %R",
		     (PyObject *)Py_TYPE(o));
	return -1;
}

static PyObject *handle_of(PyObject *module, PyObject *o)
{
	struct stream s;

	if (stream_from(o, &s) < 0)
		return NULL;
	return s.given && s.handle ? PyLong_FromVoidPtr(s.handle) : Py_NewRef(Py_None);
}

PyMethodDef stream_functions[] = {
	{ "_stream", handle_of, METH_O,
	  "_stream($module, stream, /)\n--\n\n"
	  "A stream argument as an int; None: the legacy default stream." },
	{ NULL, NULL, 0, NULL }
};
