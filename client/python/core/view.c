/* SPDX-License-Identifier: MIT
 *
 * Views: Python's arguments turned into calls of libgpushm, which knows the rules. A chain of them
 * (a subscript with several axes) makes an array for each step and keeps the last.
 */
#include "client/python/core/view.h"

#include "client/python/core/args.h"
#include "client/python/core/dtype.h"
#include "client/python/core/error.h"
#include "client/python/core/shape.h"

/* Takes the library's result over, which it wrote to *a if r is 0. */
static PyObject *made(struct array *self, int r, struct gpushm_array **a)
{
	return r < 0 ? error_raise(r) : (PyObject *)array_new(self->buffer, *a);
}

/* ---- subscripts ---- */

/* A chain of views; `array` is the one so far, owned. */
struct chain {
	struct gpushm_array *array;
	int axis; /* the next of it that a key speaks of */
};

static void chain_done(struct chain *c)
{
	c->array = gpushm_array_free(c->array);
}

static int chain_step(struct chain *c, int r, struct gpushm_array **next)
{
	if (r < 0) {
		if (r == -ERANGE)
			PyErr_SetString(PyExc_IndexError, gpushm_error());
		error_raise(r);
		return -1;
	}
	gpushm_array_free(c->array);
	c->array = *next;
	return 0;
}

/* None as a bound: to the end. Others are cut to 64 bits, as slices are. */
static int bound_from(PyObject *slice, const char *name, int64_t *ret)
{
	_cleanup_(drop_object) PyObject *value = PyObject_GetAttrString(slice, name);
	Py_ssize_t n;

	if (!value)
		return -1;
	if (value == Py_None)
		return 0;
	if (!PyIndex_Check(value)) {
		PyErr_SetString(PyExc_TypeError, "a slice's bounds are integers or None");
		return -1;
	}
	n = PyNumber_AsSsize_t(value, NULL);
	if (n == -1 && PyErr_Occurred())
		return -1;
	*ret = n == PY_SSIZE_T_MIN ? PY_SSIZE_T_MIN + 1 : n;
	return 0;
}

static int chain_slice(struct chain *c, PyObject *slice)
{
	int64_t start = GPUSHM_SLICE_NONE, stop = GPUSHM_SLICE_NONE, step = 1;
	struct gpushm_array *next = NULL;
	int r;

	if (bound_from(slice, "start", &start) < 0 || bound_from(slice, "stop", &stop) < 0 ||
	    bound_from(slice, "step", &step) < 0)
		return -1;
	r = gpushm_array_slice(c->array, c->axis++, start, stop, step, &next);
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

/* An axis of length 1 between the others. */
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
	PyErr_Format(PyExc_TypeError,
		     "views are made by integers, slices, ... and None; %R would need a copy", key);
	return -1;
}

/* Axes that the keys speak of; -1: raised. */
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
	PyErr_SetString(PyExc_IndexError, "an index can have one ... only");
	return -1;
}

static int chain_keys(struct chain *c, PyObject *keys)
{
	int ndim = gpushm_array_ndim(c->array);
	Py_ssize_t axes = count_axes(keys);

	if (axes < 0)
		return -1;
	if (axes > ndim) {
		PyErr_Format(PyExc_IndexError,
			     "too many indices: the array has %d dimensions, %zd were "
			     "given",
			     ndim, axes);
		return -1;
	}
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
	return (PyObject *)array_new(self->buffer, take_ptr(c.array));
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
	/* A key's __index__() may be Python's, and close it. */
	array_hold(self);
	result = subscript(self, keys);
	array_release(self);
	return result;
}

/* ---- other shapes ----
 *
 * What is given is read first, and then the array is looked at: what reads it may be Python's, let
 * other threads run, and close it.
 */

/* a.reshape(2, 3), a.reshape((2, 3)): the numbers, from a tuple of arguments. */
static int row_from(PyObject *args, const char *what, struct shape *ret)
{
	bool one = PyTuple_Size(args) == 1;

	return shape_from(one ? PyTuple_GetItem(args, 0) : args, what, ret);
}

/* The keyword order, which alone is allowed. 0: raised. */
static char order_from(PyObject *kwargs)
{
	PyObject *word = kwargs ? PyDict_GetItemString(kwargs, "order") : NULL;
	const char *text = "C";

	if (kwargs && PyDict_Size(kwargs) > (word ? 1 : 0)) {
		PyErr_SetString(PyExc_TypeError, "the only keyword is order");
		return 0;
	}
	if (word && args_text(word, "order", &text) < 0)
		return 0;
	return shape_order(text);
}

PyObject *view_reshape(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct array *self = (struct array *)o;
	struct gpushm_array *a = NULL;
	struct shape s;
	char order;

	if (row_from(args, "reshape", &s) < 0)
		return NULL;
	order = order_from(kwargs);
	if (!order || !array_is_open(self))
		return NULL;
	return made(self, gpushm_array_reshape(self->array, order, s.ndim, s.dims, &a), &a);
}

PyObject *view_ravel(PyObject *o, PyObject *args, PyObject *kwargs)
{
	static const char *const words[] = { "order", NULL };
	struct array *self = (struct array *)o;
	struct gpushm_array *a = NULL;
	const char *word = "C";
	char order;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s:ravel", (char **)words, &word) ||
	    !array_is_open(self))
		return NULL;
	order = shape_order(word);
	return order ? made(self, gpushm_array_ravel(self->array, order, &a), &a) : NULL;
}

/* Negative axes count from the end, as in NumPy. */
static int axes_from(struct array *self, PyObject *args, int *ret)
{
	struct shape s;
	int ndim;

	if (row_from(args, "axes", &s) < 0 || !array_is_open(self))
		return -1;
	ndim = gpushm_array_ndim(self->array);
	if (s.ndim != ndim) {
		PyErr_Format(PyExc_ValueError, "%d axes were given for an array of %d dimensions",
			     s.ndim, ndim);
		return -1;
	}
	for (int i = 0; i < ndim; i++)
		ret[i] = s.dims[i] < -ndim || s.dims[i] >= ndim
				 ? -1
				 : (int)(s.dims[i] + (s.dims[i] < 0 ? ndim : 0));
	return 0;
}

PyObject *view_transpose(PyObject *o, PyObject *args)
{
	struct array *self = (struct array *)o;
	bool reversed = PyTuple_Size(args) == 0 ||
			(PyTuple_Size(args) == 1 && PyTuple_GetItem(args, 0) == Py_None);
	struct gpushm_array *a = NULL;
	int axes[GPUSHM_MAX_NDIM];

	if (reversed ? !array_is_open(self) : axes_from(self, args, axes) < 0)
		return NULL;
	return made(self, gpushm_array_transpose(self->array, reversed ? NULL : axes, &a), &a);
}

PyObject *view_transposed(PyObject *o, void *unused)
{
	struct array *self = (struct array *)o;
	struct gpushm_array *a = NULL;

	if (!array_is_open(self))
		return NULL;
	return made(self, gpushm_array_transpose(self->array, NULL, &a), &a);
}

PyObject *view_split(PyObject *o, PyObject *args, PyObject *kwargs)
{
	static const char *const words[] = { "section", NULL };
	struct array *self = (struct array *)o;
	_cleanup_(drop_object) PyObject *list = NULL;
	long long section;
	int64_t n;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L:split", (char **)words, &section) ||
	    !array_is_open(self))
		return NULL;
	n = gpushm_array_split_count(self->array, section);
	if (n < 0)
		return error_raise((int)n);
	list = PyList_New(0);
	for (int64_t i = 0; list && i < n; i++) {
		_cleanup_(drop_object) PyObject *part = NULL;
		struct gpushm_array *a = NULL;

		part = made(self, gpushm_array_split(self->array, section, i, &a), &a);
		if (!part || PyList_Append(list, part) < 0)
			return NULL;
	}
	return take_ptr(list);
}

/* The same layout once more, with a descr: gpushm_array_view() has no word for one. Takes a over.
 */
static PyObject *with_descr(struct array *self, struct gpushm_array *a, const char *descr)
{
	struct gpushm_array_spec spec = { .dtype = gpushm_array_dtype(a),
					  .descr = descr,
					  .ndim = gpushm_array_ndim(a),
					  .shape = gpushm_array_shape(a),
					  .strides = gpushm_array_strides(a),
					  .offset = gpushm_array_offset(a) };
	struct gpushm_array *told = NULL;
	PyObject *result = made(self, gpushm_array_over(self->buffer->buffer, &spec, &told), &told);

	gpushm_array_free(a);
	return result;
}

PyObject *view_as(PyObject *o, PyObject *args, PyObject *kwargs)
{
	static const char *const words[] = { "dtype", NULL };
	_cleanup_(dtype_done) struct dtype d = { 0 };
	struct array *self = (struct array *)o;
	struct gpushm_array *a = NULL;
	PyObject *dtype;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:view", (char **)words, &dtype) ||
	    dtype_from(dtype, &d) < 0 || !array_is_open(self))
		return NULL;
	r = gpushm_array_view(self->array, d.type, &a);
	return r == 0 && d.words ? with_descr(self, a, d.words) : made(self, r, &a);
}

PyObject *view_over(struct buffer *b, PyObject *dtype, PyObject *shape, PyObject *strides,
		    uint64_t offset)
{
	_cleanup_(dtype_done) struct dtype d = { 0 };
	struct shape dims, steps;
	struct gpushm_array *a = NULL;
	struct gpushm_array_spec spec;
	int r;

	if (dtype_from(dtype, &d) < 0 || shape_from(shape, "shape", &dims) < 0)
		return NULL;
	if (strides != Py_None && shape_from(strides, "strides", &steps) < 0)
		return NULL;
	if (strides != Py_None && steps.ndim != dims.ndim) {
		PyErr_Format(PyExc_ValueError, "%d strides were given for %d dimensions",
			     steps.ndim, dims.ndim);
		return NULL;
	}
	if (!b->buffer) {
		buffer_is_open(b);
		return NULL;
	}
	spec = (struct gpushm_array_spec){ .dtype = d.type,
					   .descr = d.words,
					   .ndim = dims.ndim,
					   .shape = dims.dims,
					   .strides = strides != Py_None ? steps.dims : NULL,
					   .offset = offset };
	r = gpushm_array_over(b->buffer, &spec, &a);
	return r < 0 ? error_raise(r) : (PyObject *)array_new(b, a);
}
