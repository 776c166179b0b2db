/* SPDX-License-Identifier: MIT
 *
 * The arrays of a new buffer, or of a new stream's frames, as a dict describes them.
 */
#include "client/python/core/layouts.h"

void layouts_done(struct layouts *l)
{
	for (size_t i = 0; i < l->n; i++)
		array_layout_done(&l->layouts[i]);
	PyMem_Free(l->layouts);
	PyMem_Free(l->specs);
}

/* Replaces a list or a number, the value of the i-th item, by an array that has a shape and a
 * dtype. Returns it borrowed. */
static PyObject *describe_value(PyObject *items, Py_ssize_t i, PyObject *value)
{
	PyObject *name = PyTuple_GetItem(PyList_GetItem(items, i), 0), *array, *item;

	if (PyObject_HasAttrString(value, "shape") && PyObject_HasAttrString(value, "dtype"))
		return value;
	array = PyObject_CallMethod((PyObject *)types.buffer_made, "_described", "OO", name, value);
	item = array ? Py_BuildValue("(ON)", name, array) : NULL;
	/* PyList_SetItem() takes the item over, even where it fails. */
	return item && PyList_SetItem(items, i, item) == 0 ? array : NULL;
}

/* o is (shape, dtype), or an object that has both. */
static int layout_from_object(PyObject *o, struct layout *ret)
{
	_cleanup_(drop_object) PyObject *shape = NULL, *dtype = NULL;

	if (PyTuple_Check(o) && PyTuple_Size(o) == 2) {
		shape = Py_NewRef(PyTuple_GetItem(o, 0));
		dtype = Py_NewRef(PyTuple_GetItem(o, 1));
	} else {
		shape = PyObject_GetAttrString(o, "shape");
		dtype = shape ? PyObject_GetAttrString(o, "dtype") : NULL;
	}
	return dtype ? layout_from(dtype, shape, Py_None, 'C', ret) : -1;
}

int layout_from_value(PyObject *items, Py_ssize_t i, const char *name, PyObject *value,
		      struct layout *ret)
{
	(void)name;
	if (!PyTuple_Check(value) || PyTuple_Size(value) != 2)
		value = describe_value(items, i, value);
	return value ? layout_from_object(value, ret) : -1;
}

int layouts_from(PyObject *items, layout_fn *read, struct layouts *ret)
{
	size_t n = (size_t)PyList_Size(items);

	ret->layouts = PyMem_Calloc(n + 1, sizeof(*ret->layouts));
	ret->specs = PyMem_Calloc(n + 1, sizeof(*ret->specs));
	if (!ret->layouts || !ret->specs) {
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		PyObject *value;
		const char *name;

		ret->n = i + 1;
		if (!PyArg_ParseTuple(PyList_GetItem(items, (Py_ssize_t)i),
				      "sO;arrays are a dict, and its keys str", &name, &value) ||
		    read(items, (Py_ssize_t)i, name, value, &ret->layouts[i]) < 0)
			return -1;
		ret->layouts[i].spec.name = name;
		ret->specs[i] = ret->layouts[i].spec;
	}
	return 0;
}
