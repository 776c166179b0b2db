/* SPDX-License-Identifier: MIT
 *
 * The arrays of a new buffer, of a new stream's frames, or of Buffer.describe(). All layouts are
 * read first, so that a wrong argument raises before the daemon is asked.
 */
#include "client/python/core/layouts.h"

void layouts_done(struct layouts *l)
{
	for (size_t i = 0; i < l->n; i++)
		array_layout_done(&l->layouts[i]);
	PyMem_Free(l->layouts);
	PyMem_Free(l->specs);
}

static int read_one(const char *name, PyObject *value, struct layout *ret)
{
	PyObject *shape, *dtype, *strides;
	const char *word = "C";
	uint64_t offset;
	char order;

	if (!PyTuple_Check(value))
		return error_python(PyExc_TypeError,
				    "array \"%s\": (shape, dtype, strides, offset) is wanted, not "
				    "%R",
				    name, value);
	if (!PyArg_ParseTuple(value, "OOOO&|s;an array is (shape, dtype, strides, offset)", &shape,
			      &dtype, &strides, u64_arg, &offset, &word))
		return -1;
	order = order_from(word);
	if (!order || layout_from(dtype, shape, strides, order, ret) < 0)
		return -1;
	ret->spec.offset = offset;
	ret->spec.name = name;
	return 0;
}

int layouts_arg(PyObject *items, void *ret)
{
	struct layouts *l = ret;
	size_t n = (size_t)PyList_Size(items);

	if (PyErr_Occurred())
		return 0;
	l->layouts = PyMem_Calloc(n + 1, sizeof(*l->layouts));
	l->specs = PyMem_Calloc(n + 1, sizeof(*l->specs));
	if (!l->layouts || !l->specs) {
		PyErr_NoMemory();
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		PyObject *value;
		const char *name;

		l->n = i + 1;
		if (!PyArg_ParseTuple(PyList_GetItem(items, (Py_ssize_t)i),
				      "sO;arrays are a dict, and its keys str", &name, &value) ||
		    read_one(name, value, &l->layouts[i]) < 0)
			return 0;
		l->specs[i] = l->layouts[i].spec;
	}
	return 1;
}

PyObject *pybuffer_describe(PyObject *o, PyObject *arrays)
{
	struct buffer *self = (struct buffer *)o;
	_cleanup_(layouts_done) struct layouts l = { 0 };
	_cleanup_(drop_object) PyObject *items = PyMapping_Items(arrays);
	int r;

	if (!items || !layouts_arg(items, &l) || !buffer_is_open(self))
		return NULL;
	buffer_hold(self);
	WITHOUT_GIL(r = gpushm_describe(self->buffer, l.specs, l.n));
	return object_none(buffer_release(self, r));
}
