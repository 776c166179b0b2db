/* SPDX-License-Identifier: MIT
 *
 * Buffer.describe(): arrays of a buffer that is not published yet, at places of the caller's. It
 * reads all layouts first, so that a wrong argument raises before the daemon is asked.
 */
#include "client/python/core/describe.h"

#include "client/python/core/layouts.h"

/* value: (shape, dtype, strides or None, offset), as the arguments of Buffer.array(). */
static int read_place(PyObject *items, Py_ssize_t i, const char *name, PyObject *value,
		      struct layout *ret)
{
	PyObject *shape, *dtype, *strides;
	uint64_t offset;

	(void)items;
	(void)i;
	if (!PyTuple_Check(value))
		return error_python(PyExc_TypeError,
				    "array \"%s\": (shape, dtype, strides, offset) is wanted, not "
				    "%R",
				    name, value);
	if (!PyArg_ParseTuple(value, "OOOO&;an array is (shape, dtype, strides, offset)", &shape,
			      &dtype, &strides, u64_arg, &offset) ||
	    layout_from(dtype, shape, strides, 'C', ret) < 0)
		return -1;
	ret->spec.offset = offset;
	return 0;
}

PyObject *pybuffer_describe(struct buffer *self, PyObject *arrays)
{
	_cleanup_(layouts_done) struct layouts l = { 0 };
	_cleanup_(drop_object) PyObject *items = PyMapping_Items(arrays);
	int r;

	if (!items || layouts_from(items, read_place, &l) < 0 || !buffer_is_open(self))
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
