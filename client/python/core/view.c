/* SPDX-License-Identifier: MIT
 *
 * Views: Python's arguments become calls of libgpushm, which checks them. A subscript with several
 * axes makes a chain of arrays and keeps the last one.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"

/* ---- subscripts ---- */

/* A chain of views. */
struct chain {
	struct gpushm_array *array; /* the last one so far; owned */
	int axis;		    /* of it, to which the next key applies */
};

static void chain_done(struct chain *c)
{
	c->array = gpushm_array_free(c->array);
}

static int chain_step(struct chain *c, int r, struct gpushm_array **next)
{
	if (r == -ERANGE)
		PyErr_SetString(PyExc_IndexError, gpushm_error());
	if (error_result(r) < 0)
		return -1;
	gpushm_array_free(c->array);
	c->array = *next;
	return 0;
}

/* For a bound that the slice has, the library's word for "none" is no number. */
static int64_t bound(Py_ssize_t n)
{
	return n == GPUSHM_SLICE_NONE ? GPUSHM_SLICE_NONE + 1 : n;
}

/* Python puts numbers in the place of None that mean the same, and cuts large ones to 64 bits. */
static int chain_slice(struct chain *c, PyObject *slice)
{
	struct gpushm_array *next = NULL;
	Py_ssize_t start, stop, step;
	int r;

	if (PySlice_Unpack(slice, &start, &stop, &step) < 0)
		return -1;
	r = gpushm_array_slice(c->array, c->axis++, bound(start), bound(stop), step, &next);
	return chain_step(c, r, &next);
}

static int chain_index(struct chain *c, PyObject *index)
{
	Py_ssize_t i = PyNumber_AsSsize_t(index, PyExc_IndexError);
	struct gpushm_array *next = NULL;

	if (i == -1 && PyErr_Occurred())
		return -1;
	return chain_step(c, gpushm_array_index(c->array, c->axis, i, &next), &next);
}

/* Inserts an axis of length 1. */
static int chain_new_axis(struct chain *c)
{
	const int64_t *shape = gpushm_array_shape(c->array);
	int ndim = gpushm_array_ndim(c->array);
	int64_t dims[GPUSHM_MAX_NDIM + 1];
	struct gpushm_array *next = NULL;

	for (int i = 0; i <= ndim; i++)
		dims[i] = i < c->axis ? shape[i] : i == c->axis ? 1 : shape[i - 1];
	c->axis++;
	return chain_step(c, gpushm_array_reshape(c->array, 'C', ndim + 1, dims, &next), &next);
}

static int chain_key(struct chain *c, PyObject *key)
{
	if (PySlice_Check(key))
		return chain_slice(c, key);
	if (key == Py_None)
		return chain_new_axis(c);
	if (PyIndex_Check(key) && !PyBool_Check(key))
		return chain_index(c, key);
	return error_python(
		PyExc_TypeError,
		"views are made by integers, slices, ... and None; %R would need a copy", key);
}

/* The number of axes that the keys use. */
static Py_ssize_t count_axes(PyObject *keys)
{
	Py_ssize_t n = 0, ellipses = 0;

	for (Py_ssize_t i = 0; i < PyTuple_Size(keys); i++) {
		PyObject *key = PyTuple_GetItem(keys, i);

		ellipses += key == Py_Ellipsis;
		n += key != Py_Ellipsis && key != Py_None;
	}
	if (ellipses <= 1)
		return n;
	return error_python(PyExc_IndexError, "an index can have one ... only");
}

static int chain_keys(struct chain *c, PyObject *keys)
{
	int ndim = gpushm_array_ndim(c->array);
	Py_ssize_t axes = count_axes(keys);

	if (axes < 0)
		return -1;
	if (axes > ndim)
		return error_python(PyExc_IndexError,
				    "too many indices: the array has %d dimensions, %zd were "
				    "given",
				    ndim, axes);
	for (Py_ssize_t i = 0; i < PyTuple_Size(keys); i++) {
		PyObject *key = PyTuple_GetItem(keys, i);

		if (key == Py_Ellipsis)
			c->axis += ndim - (int)axes;
		else if (chain_key(c, key) < 0)
			return -1;
	}
	return 0;
}

static PyObject *subscript(struct array *self, PyObject *keys)
{
	_cleanup_(chain_done) struct chain c = { 0 };
	int r = gpushm_array_dup(self->array, &c.array);

	if (r < 0)
		return error_raise(r);
	if (chain_keys(&c, keys) < 0)
		return NULL;
	return array_new(self->buffer, 0, &c.array);
}

PyObject *view_subscript(PyObject *o, PyObject *key)
{
	struct array *self = (struct array *)o;
	_cleanup_(drop_object) PyObject *keys = NULL;
	PyObject *result;

	if (!array_is_open(self))
		return NULL;
	keys = PyTuple_Check(key) ? Py_NewRef(key) : PyTuple_Pack(1, key);
	if (!keys)
		return NULL;
	/* A key's __index__() may be written in Python, and try to close the array. */
	array_hold(self);
	result = subscript(self, keys);
	array_release(self);
	return result;
}

/* ---- other shapes ---- */

/* The numbers of a.reshape(2, 3) or a.reshape((2, 3)). */
static int row_from(PyObject *args, const char *what, struct shape *ret)
{
	bool one = PyTuple_Size(args) == 1;

	return shape_from(one ? PyTuple_GetItem(args, 0) : args, what, ret);
}

PyObject *Array_reshape(PyObject *o, PyObject *args, PyObject *kwargs)
{
	_cleanup_(drop_object) PyObject *none = PyTuple_New(0);
	struct array *self = (struct array *)o;
	struct gpushm_array *a = NULL;
	const char *word = "C";
	struct shape s;
	char order;

	if (!none || row_from(args, "reshape", &s) < 0 ||
	    !args_parse(none, kwargs, Array_reshape, "|$s:reshape", &word))
		return NULL;
	order = order_from(word);
	if (!order || !array_is_open(self))
		return NULL;
	return array_new(self->buffer, gpushm_array_reshape(self->array, order, s.ndim, s.dims, &a),
			 &a);
}

PyObject *Array_ravel(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct array *self = (struct array *)o;
	struct gpushm_array *a = NULL;
	PyObject *unused;
	const char *word = "C";
	char order;

	if (!args_parse(args, kwargs, Array_ravel, "|sO:ravel", &word, &unused) ||
	    !array_is_open(self))
		return NULL;
	order = order_from(word);
	return order ? array_new(self->buffer, gpushm_array_ravel(self->array, order, &a), &a)
		     : NULL;
}

/* Negative axes count from the end, as in NumPy. */
static int axes_from(struct array *self, PyObject *args, int *ret)
{
	struct shape s;
	int ndim;

	if (row_from(args, "axes", &s) < 0 || !array_is_open(self))
		return -1;
	ndim = gpushm_array_ndim(self->array);
	if (s.ndim != ndim)
		return error_python(PyExc_ValueError,
				    "%d axes were given for an array of %d dimensions", s.ndim,
				    ndim);
	for (int i = 0; i < ndim; i++)
		ret[i] = s.dims[i] < -ndim || s.dims[i] >= ndim
				 ? -1
				 : (int)(s.dims[i] + (s.dims[i] < 0 ? ndim : 0));
	return 0;
}

static PyObject *transpose(struct array *self, const int *axes)
{
	struct gpushm_array *a = NULL;

	return array_new(self->buffer, gpushm_array_transpose(self->array, axes, &a), &a);
}

PyObject *Array_transpose(PyObject *o, PyObject *args)
{
	struct array *self = (struct array *)o;
	bool reversed = PyTuple_Size(args) == 0 ||
			(PyTuple_Size(args) == 1 && PyTuple_GetItem(args, 0) == Py_None);
	int axes[GPUSHM_MAX_NDIM];

	if (reversed ? !array_is_open(self) : axes_from(self, args, axes) < 0)
		return NULL;
	return transpose(self, reversed ? NULL : axes);
}

PyObject *Array_T(PyObject *o, void *unused)
{
	return array_is_open((struct array *)o) ? transpose((struct array *)o, NULL) : NULL;
}

PyObject *Array_split(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct array *self = (struct array *)o;
	PyObject *list, *unused;
	long long section;
	int64_t n;

	if (!args_parse(args, kwargs, Array_split, "L|O:split", &section, &unused) ||
	    !array_is_open(self))
		return NULL;
	n = gpushm_array_split_count(self->array, section);
	if (n < 0)
		return error_raise((int)n);
	list = PyList_New(0);
	for (int64_t i = 0; list && i < n; i++) {
		struct gpushm_array *a = NULL;
		int r = gpushm_array_split(self->array, section, i, &a);

		object_append(&list, array_new(self->buffer, r, &a));
	}
	return list;
}

/* Makes the same view with a descr, which gpushm_array_view() cannot set. Takes a over. */
static PyObject *with_descr(struct array *self, struct gpushm_array *a, PyObject *dtype)
{
	int ndim = gpushm_array_ndim(a);
	_cleanup_(drop_object) PyObject *shape = shape_tuple(gpushm_array_shape(a), ndim),
					*strides = shape_tuple(gpushm_array_strides(a), ndim);
	uint64_t offset = gpushm_array_offset(a);

	gpushm_array_free(a);
	return shape && strides ? view_over(self->buffer, dtype, shape, strides, offset) : NULL;
}

PyObject *Array_view(PyObject *o, PyObject *args, PyObject *kwargs)
{
	_cleanup_(dtype_done) struct dtype d = { 0 };
	struct array *self = (struct array *)o;
	struct gpushm_array *a = NULL;
	PyObject *dtype;
	int r;

	if (!args_parse(args, kwargs, Array_view, "O:view", &dtype) || dtype_from(dtype, &d) < 0 ||
	    !array_is_open(self))
		return NULL;
	r = gpushm_array_view(self->array, d.type, &a);
	return r == 0 && d.descr ? with_descr(self, a, dtype) : array_new(self->buffer, r, &a);
}

PyObject *view_over(struct buffer *b, PyObject *dtype, PyObject *shape, PyObject *strides,
		    uint64_t offset)
{
	_cleanup_(array_layout_done) struct layout l = { 0 };
	struct gpushm_array *a = NULL;

	if (layout_from(dtype, shape, strides, 'C', &l) < 0 || !buffer_is_alive(b))
		return NULL;
	l.spec.offset = offset;
	return array_new(b, gpushm_array_over(b->buffer, &l.spec, &a), &a);
}
