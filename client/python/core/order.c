/* SPDX-License-Identifier: MIT
 *
 * Streams that are waited for when somebody needs what was queued on them. Other threads queue and
 * wait meanwhile: an entry is dropped when it is the one that was waited for.
 */
#include "client/python/core/order.h"

#define STREAMS_MAX 8 /* that are kept alive for a consumer who may never come */

void order_done(struct order *o)
{
	Py_CLEAR(o->streams);
}

int order_add(struct order *o, const struct stream *s)
{
	void *handle = s->handle ? s->handle : (void *)1;
	_cleanup_(drop_object) PyObject *number = PyLong_FromVoidPtr(handle), *entry = NULL;

	if (!o->streams)
		o->streams = PyDict_New();
	if (!o->streams || !number)
		return -1;
	entry = PyTuple_Pack(1, s->object ? s->object : Py_None);
	if (!entry)
		return -1;
	/* Out and in again: to the end. */
	if (PyDict_Contains(o->streams, number) == 1 && PyDict_DelItem(o->streams, number) < 0)
		return -1;
	if (PyDict_SetItem(o->streams, number, entry) < 0)
		return -1;
	return PyDict_Size(o->streams) > STREAMS_MAX ? order_wait(o, handle) : 0;
}

/* Takes the pair of (number, entry) for a snapshot of what was queued. */
static int wait_for(struct order *o, PyObject *pair)
{
	PyObject *number = PyTuple_GetItem(pair, 0), *entry = PyTuple_GetItem(pair, 1);
	_cleanup_(drop_object) PyObject *done =
		object_call_python("gpushm._driver", "synchronize", "(O)", number);

	if (!done)
		return -1;
	if (PyDict_GetItemWithError(o->streams, number) == entry)
		return PyDict_DelItem(o->streams, number);
	return PyErr_Occurred() ? -1 : 0;
}

static PyObject *snapshot(const struct order *o)
{
	return o->streams ? PyDict_Items(o->streams) : PyList_New(0);
}

int order_wait(struct order *o, const void *but)
{
	_cleanup_(drop_object) PyObject *pairs = snapshot(o);

	if (!pairs)
		return -1;
	for (Py_ssize_t i = 0; i < PyList_Size(pairs); i++) {
		PyObject *pair = PyList_GetItem(pairs, i);

		if (PyLong_AsVoidPtr(PyTuple_GetItem(pair, 0)) != but && wait_for(o, pair) < 0)
			return -1;
	}
	return 0;
}

int order_last(struct order *o, void **ret)
{
	_cleanup_(drop_object) PyObject *pairs = snapshot(o);
	Py_ssize_t n = pairs ? PyList_Size(pairs) : 0;
	void *last = NULL;

	if (!pairs)
		return -1;
	if (n > 0)
		last = PyLong_AsVoidPtr(PyTuple_GetItem(PyList_GetItem(pairs, n - 1), 0));
	if (n > 1 && order_wait(o, last) < 0)
		return -1;
	*ret = last;
	return 0;
}
