/* SPDX-License-Identifier: MIT
 *
 * Rows of numbers: read from Python with no more than GPUSHM_MAX_NDIM of them, and told to it as
 * tuples. Whether they make sense for an array is libgpushm's to say.
 */
#include "client/python/core/shape.h"

static int number_from(PyObject *o, int64_t *ret)
{
	_cleanup_(drop_object) PyObject *number = PyNumber_Index(o);
	long long n;

	if (!number)
		return -1;
	n = PyLong_AsLongLong(number);
	if (n == -1 && PyErr_Occurred())
		return -1;
	*ret = n;
	return 0;
}

int shape_from(PyObject *o, const char *what, struct shape *ret)
{
	_cleanup_(drop_object) PyObject *row = NULL;
	struct shape s = { 0 };
	Py_ssize_t n;

	if (PyIndex_Check(o)) {
		s.ndim = 1;
		if (number_from(o, &s.dims[0]) < 0)
			return -1;
		*ret = s;
		return 0;
	}
	row = PySequence_Tuple(o);
	if (!row)
		return -1;
	n = PyTuple_Size(row);
	if (n > GPUSHM_MAX_NDIM) {
		PyErr_Format(PyExc_ValueError, "%s: %zd dimensions; at most %d are possible", what,
			     n, GPUSHM_MAX_NDIM);
		return -1;
	}
	for (; s.ndim < (int)n; s.ndim++)
		if (number_from(PyTuple_GetItem(row, s.ndim), &s.dims[s.ndim]) < 0)
			return -1;
	*ret = s;
	return 0;
}

void shape_strides(const struct shape *shape, int64_t itemsize, char order, struct shape *ret)
{
	uint64_t stride = (uint64_t)itemsize;

	ret->ndim = shape->ndim;
	for (int i = 0; i < shape->ndim; i++) {
		int axis = order == 'F' ? i : shape->ndim - 1 - i;

		ret->dims[axis] = (int64_t)stride;
		stride *= (uint64_t)(shape->dims[axis] > 0 ? shape->dims[axis] : 1);
	}
}

char shape_order(const char *word)
{
	if (strcmp(word, "C") == 0 || strcmp(word, "F") == 0)
		return word[0];
	PyErr_Format(PyExc_ValueError, "order is \"C\" or \"F\", not \"%s\"", word);
	return 0;
}

PyObject *shape_tuple(const int64_t *dims, int n)
{
	PyObject *row = PyTuple_New(n);

	for (int i = 0; row && i < n; i++) {
		PyObject *number = PyLong_FromLongLong(dims[i]);

		/* SetItem takes the number, also where it fails. */
		if (!number || PyTuple_SetItem(row, i, number) < 0)
			Py_CLEAR(row);
	}
	return row;
}
