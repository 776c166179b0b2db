/* SPDX-License-Identifier: MIT
 *
 * Streams that are waited for when somebody needs what was queued on them. Other threads queue and
 * wait meanwhile: an entry is dropped when it is the one that was waited for.
 */
#include "client/python/core/order.h"

#define STREAMS_MAX 8 /* that are kept alive for a consumer who may never come */

/* CU_STREAM_PER_THREAD, which is another stream in each thread. */
#define PER_THREAD ((void *)2)

void order_done(struct order *o)
{
	Py_CLEAR(o->streams);
}

/* (CUstream, the thread that means it; 0: any). NULL: raised. */
static PyObject *key_of(void *handle)
{
	unsigned long thread = handle == PER_THREAD ? PyThread_get_thread_ident() : 0;

	return Py_BuildValue("(Nk)", PyLong_FromVoidPtr(handle), thread);
}

static void *handle_of(PyObject *key)
{
	return PyLong_AsVoidPtr(PyTuple_GetItem(key, 0));
}

/* Whether this thread means the same stream by its CUstream. */
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
	/* Out and in again: to the end. */
	if (PyDict_Contains(o->streams, key) == 1 && PyDict_DelItem(o->streams, key) < 0)
		return -1;
	if (PyDict_SetItem(o->streams, key, entry) < 0)
		return -1;
	return PyDict_Size(o->streams) > STREAMS_MAX ? order_wait(o, handle) : 0;
}

/* Takes the pair of (key, entry) from a snapshot of what was queued. What another thread means can
 * be waited for with all else of the GPU only. */
static int wait_for(struct order *o, PyObject *pair)
{
	PyObject *key = PyTuple_GetItem(pair, 0), *entry = PyTuple_GetItem(pair, 1);
	_cleanup_(drop_object) PyObject *done = NULL;

	done = is_known_here(key) ? object_call_python("gpushm._driver", "synchronize", "(O)",
						       PyTuple_GetItem(key, 0))
				  : object_call_python("gpushm._driver", "synchronize_all", "()");
	if (!done)
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
	_cleanup_(drop_object) PyObject *pairs = snapshot(o);

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
