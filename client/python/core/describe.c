/* SPDX-License-Identifier: MIT
 *
 * Buffer.describe(): arrays of a buffer that is not published yet, at places of the caller's. It
 * reads all layouts first, so that a wrong argument raises before the daemon is asked.
 */
#include "client/python/core/describe.h"

#include "client/python/core/layouts.h"

/* value: (shape, dtype, strides or None, offset), as the arguments of Buffer.array(). */
static int layout_of(const char *name, PyObject *value, struct layout *ret)
{
	PyObject *shape, *dtype, *strides;
	uint64_t offset;

	if (!PyTuple_Check(value))
		return error_python(PyExc_TypeError,
				    "array \"%s\": (shape, dtype, strides, offset) is wanted, not "
				    "%R",
				    name, value);
	if (!PyArg_ParseTuple(value, "OOOO&;an array is (shape, dtype, strides, offset)", &shape,
			      &dtype, &strides, u64_arg, &offset) ||
	    layout_from(dtype, shape, strides, 'C', ret) < 0)
		return -1;
	ret->spec.name = name;
	ret->spec.offset = offset;
	return 0;
}

/* `items` is a list of (name, value), and keeps the names. The caller ends *ret with
 * layouts_done(), also after a failure. */
static int places_from(PyObject *items, struct layouts *ret)
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
				      "sO;arrays are a dict of str to tuples", &name, &value) ||
		    layout_of(name, value, &ret->layouts[i]) < 0)
			return -1;
		ret->specs[i] = ret->layouts[i].spec;
	}
	return 0;
}

PyObject *buffer_describe(struct buffer *self, PyObject *arrays)
{
	_cleanup_(layouts_done) struct layouts l = { 0 };
	_cleanup_(drop_object) PyObject *items = PyMapping_Items(arrays);
	int r;

	if (!items || places_from(items, &l) < 0 || !buffer_is_open(self))
		return NULL;
	self->calls++;
	Py_BEGIN_ALLOW_THREADS
	r = gpushm_describe(self->buffer, l.specs, l.n);
	Py_END_ALLOW_THREADS
	self->calls--;
	if (r < 0)
		error_raise(r);
	buffer_settle(self);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}
