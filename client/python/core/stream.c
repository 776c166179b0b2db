/* SPDX-License-Identifier: MIT
 *
 * Reading a stream argument: the protocol's attribute first, then the attributes of libraries that
 * do not have the protocol. And waiting for streams: other threads queue copies and wait meanwhile,
 * so an entry is removed only if it is still the one that this thread waited for.
 */
#include "client/python/core/stream.h"

#define STREAMS_MAX 8 /* that a buffer keeps alive for a consumer that may never come */

/* CU_STREAM_PER_THREAD, which is a different stream in each thread. */
#define PER_THREAD ((void *)2)

static int from_number(PyObject *o, struct stream *ret)
{
	_cleanup_(drop_object) PyObject *number = PyNumber_Index(o);
	void *p;

	if (!number)
		return -1;
	p = PyLong_AsVoidPtr(number);
	if (PyErr_Occurred())
		return -1;
	/* 1 and 2 name default streams. Any other number may belong to a stream that is gone. */
	*ret = (struct stream){ .given = p != NULL, .handle = p, .lasts = (uintptr_t)p <= 2 };
	return 0;
}

/* (0, pointer): the attribute itself, or what it returns if it is a method. The protocol has
 * specified both. */
static int from_protocol(PyObject *value, struct stream *ret)
{
	_cleanup_(drop_object) PyObject *pair =
		PyCallable_Check(value) ? PyObject_CallNoArgs(value) : Py_NewRef(value);
	_cleanup_(drop_object) PyObject *row = pair ? PySequence_Tuple(pair) : NULL;

	if (!row)
		return -1;
	if (PyTuple_Size(row) < 2)
		return error_python(PyExc_TypeError, "__cuda_stream__ gives (version, pointer)");
	if (from_number(PyTuple_GetItem(row, 1), ret) < 0)
		return -1;
	/* The caller named a stream, even if it is the default one. */
	ret->given = true;
	return 0;
}

/* *ret_has becomes whether o has that attribute. */
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
	/* Numba has a ctypes.c_void_p here; its value is None for the default stream. */
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
	return error_python(
		PyExc_TypeError,
		"a stream is an int, an object with __cuda_stream__, or a stream of CuPy, "
		"PyTorch or "
		"Numba, not %R",
		(PyObject *)Py_TYPE(o));
}

PyObject *module_stream(PyObject *module, PyObject *o)
{
	struct stream s;

	if (stream_from(o, &s) < 0)
		return NULL;
	return object_address(s.given ? s.handle : NULL);
}

/* ---- order ---- */

void order_done(struct order *o)
{
	Py_CLEAR(o->streams);
}

/* (CUstream, the thread that it belongs to; 0: any). */
static PyObject *key_of(void *handle)
{
	unsigned long thread = handle == PER_THREAD ? PyThread_get_thread_ident() : 0;

	return Py_BuildValue("(Nk)", PyLong_FromVoidPtr(handle), thread);
}

static void *handle_of(PyObject *key)
{
	return PyLong_AsVoidPtr(PyTuple_GetItem(key, 0));
}

/* Whether the CUstream is the same stream in this thread. */
static bool is_known_here(PyObject *key)
{
	unsigned long thread = PyLong_AsUnsignedLong(PyTuple_GetItem(key, 1));

	return thread == 0 || thread == PyThread_get_thread_ident();
}

int order_add(struct order *o, const struct stream *s)
{
	void *handle = s->handle ? s->handle : (void *)1;
	_cleanup_(drop_object) PyObject *key = key_of(handle), *entry = NULL;

	if (!o->streams)
		o->streams = PyDict_New();
	if (!o->streams || !key)
		return -1;
	entry = PyTuple_Pack(1, s->object ? s->object : Py_None);
	if (!entry)
		return -1;
	/* Removed and added again, so that it is the last entry. */
	if (PyDict_Contains(o->streams, key) == 1 && PyDict_DelItem(o->streams, key) < 0)
		return -1;
	if (PyDict_SetItem(o->streams, key, entry) < 0)
		return -1;
	return PyDict_Size(o->streams) > STREAMS_MAX ? order_wait(o, handle) : 0;
}

/* `pair` is (key, entry) from a snapshot of the dict. For another thread's per-thread stream this
 * thread can only wait for everything on the GPU. */
static int wait_for(struct order *o, PyObject *pair)
{
	PyObject *key = PyTuple_GetItem(pair, 0), *entry = PyTuple_GetItem(pair, 1);

	if (object_done(is_known_here(key)
				? object_call(types.driver_module, "synchronize", "(O)",
					      PyTuple_GetItem(key, 0))
				: object_call(types.driver_module, "synchronize_all", "()")) < 0)
		return -1;
	if (PyDict_GetItemWithError(o->streams, key) == entry)
		return PyDict_DelItem(o->streams, key);
	return PyErr_Occurred() ? -1 : 0;
}

static PyObject *snapshot(const struct order *o)
{
	return o->streams ? PyDict_Items(o->streams) : PyList_New(0);
}

int order_wait(struct order *o, const void *but)
{
	_cleanup_(drop_object) PyObject *pairs = o->streams ? snapshot(o) : NULL;

	if (!o->streams)
		return 0;
	if (!pairs)
		return -1;
	for (Py_ssize_t i = 0; i < PyList_Size(pairs); i++) {
		PyObject *pair = PyList_GetItem(pairs, i), *key = PyTuple_GetItem(pair, 0);

		if (handle_of(key) == but && is_known_here(key))
			continue;
		if (wait_for(o, pair) < 0)
			return -1;
	}
	return 0;
}

int order_last(struct order *o, void **ret)
{
	_cleanup_(drop_object) PyObject *pairs = snapshot(o);
	Py_ssize_t n = pairs ? PyList_Size(pairs) : 0;
	PyObject *key = n ? PyTuple_GetItem(PyList_GetItem(pairs, n - 1), 0) : NULL;
	void *last = key && is_known_here(key) ? handle_of(key) : NULL;

	if (!pairs || order_wait(o, last) < 0)
		return -1;
	*ret = last;
	return 0;
}
