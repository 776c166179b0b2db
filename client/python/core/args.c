/* SPDX-License-Identifier: MIT
 *
 * Reading arguments. Where Python has a message for a wrong argument, this file uses its words.
 * Whether a shape or a size makes sense is checked by libgpushm, and not here.
 */
#include "client/python/core/args.h"

#include "proto/base/clock.h"

/* ---- METH_FASTCALL | METH_KEYWORDS ---- */

static Py_ssize_t position_of(const struct args_signature *s, PyObject *name)
{
	for (Py_ssize_t i = 0; s->names[i]; i++)
		if (PyUnicode_CompareWithASCIIString(name, s->names[i]) == 0)
			return i;
	return -1;
}

static int take_keyword(const struct args_signature *s, Py_ssize_t n, PyObject *name,
			PyObject *value, PyObject **ret)
{
	Py_ssize_t at = position_of(s, name);

	if (at < 0)
		PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
			     s->function, name);
	else if (at < n)
		PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
			     s->function, name);
	else
		ret[at] = value;
	return at < 0 || at < n ? -1 : 0;
}

int args_take(const struct args_signature *s, PyObject *const *given, Py_ssize_t n,
	      PyObject *keywords, PyObject **ret)
{
	Py_ssize_t n_keywords = keywords ? PyTuple_Size(keywords) : 0;

	if (n > s->positional)
		return error_python(PyExc_TypeError,
				    "%s() takes at most %zd positional arguments (%zd given)",
				    s->function, s->positional, n);
	for (Py_ssize_t i = 0; i < n; i++)
		ret[i] = given[i];
	/* The values of keywords follow the positional ones. */
	for (Py_ssize_t i = 0; i < n_keywords; i++)
		if (take_keyword(s, n, PyTuple_GetItem(keywords, i), given[n + i], ret) < 0)
			return -1;
	for (Py_ssize_t i = 0; i < s->required; i++) {
		if (ret[i])
			continue;
		return error_python(PyExc_TypeError,
				    "%s() missing required argument '%s' (pos %zd)", s->function,
				    s->names[i], i + 1);
	}
	return 0;
}

PyObject *args_first(PyObject *args)
{
	return PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
}

/* ---- text and numbers ---- */

int args_text(PyObject *o, const char *what, const char **ret)
{
	Py_ssize_t n;
	const char *text;

	if (!PyUnicode_Check(o))
		return error_python(PyExc_TypeError, "%s must be a str, not %R", what,
				    (PyObject *)Py_TYPE(o));
	text = PyUnicode_AsUTF8AndSize(o, &n);
	if (!text)
		return -1;
	if (strlen(text) != (size_t)n)
		return error_python(PyExc_ValueError, "%s: embedded null character", what);
	*ret = text;
	return 0;
}

int u64_arg(PyObject *o, void *ret)
{
	_cleanup_(drop_object) PyObject *number = PyNumber_Index(o);
	unsigned long long n = number ? PyLong_AsUnsignedLongLong(number) : 0;

	if (PyErr_Occurred())
		return 0;
	*(uint64_t *)ret = n;
	return 1;
}

int u32_arg(PyObject *o, void *ret)
{
	uint64_t n;

	if (!u64_arg(o, &n))
		return 0;
	if (n > UINT32_MAX) {
		PyErr_Format(PyExc_OverflowError, "%R has more than 32 bits", o);
		return 0;
	}
	*(uint32_t *)ret = (uint32_t)n;
	return 1;
}

/* ---- deadlines ---- */

#define TURN_MS 100u
#define SECONDS_MAX 1e9 /* some 30 years count as for ever */

int deadline_arg(PyObject *seconds, void *ret)
{
	struct deadline *d = ret;
	double s;

	d->at = GPUSHM_WAIT_FOREVER;
	if (seconds == Py_None)
		return 1;
	s = PyFloat_AsDouble(seconds);
	if (s == -1.0 && PyErr_Occurred())
		return 0;
	if (!(s >= 0)) {
		PyErr_SetString(
			PyExc_ValueError,
			"a timeout is a number of seconds from 0, or None to wait for ever");
		return 0;
	}
	if (s <= SECONDS_MAX)
		d->at = s > 0 ? clock_monotonic_ns() + (uint64_t)(s * 1e9) : 0;
	return 1;
}

uint64_t deadline_left(const struct deadline *d)
{
	return clock_left_ms(d->at);
}

uint64_t deadline_turn(const struct deadline *d)
{
	uint64_t left = deadline_left(d);

	return left < TURN_MS ? left : TURN_MS;
}

/* ---- shapes, types of elements, layouts ---- */

int shape_from(PyObject *o, const char *what, struct shape *ret)
{
	_cleanup_(drop_object) PyObject *row = NULL;
	struct shape s = { 0 };
	Py_ssize_t n;

	row = PyIndex_Check(o) ? PyTuple_Pack(1, o) : PySequence_Tuple(o);
	if (!row)
		return -1;
	n = PyTuple_Size(row);
	if (n > GPUSHM_MAX_NDIM)
		return error_python(PyExc_ValueError, "%s: %zd dimensions; at most %d are possible",
				    what, n, GPUSHM_MAX_NDIM);
	for (; s.ndim < (int)n; s.ndim++) {
		s.dims[s.ndim] = PyLong_AsLongLong(PyTuple_GetItem(row, s.ndim));
		if (s.dims[s.ndim] == -1 && PyErr_Occurred())
			return -1;
	}
	*ret = s;
	return 0;
}

bool shape_is(const struct gpushm_array *a, int ndim, const int64_t *dims)
{
	bool same = ndim == gpushm_array_ndim(a);

	for (int i = 0; same && i < ndim; i++)
		same = dims[i] == gpushm_array_dim(a, i);
	return same;
}

PyObject *shape_tuple(const int64_t *dims, int n)
{
	PyObject *row = PyTuple_New(n);

	for (int i = 0; row && i < n; i++) {
		PyObject *number = PyLong_FromLongLong(dims[i]);

		/* PyTuple_SetItem() takes the number over, even where it fails. */
		if (!number || PyTuple_SetItem(row, i, number) < 0)
			Py_CLEAR(row);
	}
	return row;
}

char order_from(const char *word)
{
	if (strcmp(word, "C") == 0 || strcmp(word, "F") == 0)
		return word[0];
	PyErr_Format(PyExc_ValueError, "order is \"C\" or \"F\", not \"%s\"", word);
	return 0;
}

int dtype_from(PyObject *o, struct dtype *ret)
{
	_cleanup_(drop_object) PyObject *pair = NULL;
	PyObject *name, *descr;
	const char *text;

	*ret = (struct dtype){ 0 };
	if (PyUnicode_Check(o)) {
		if (args_text(o, "dtype", &text) < 0)
			return -1;
		/* This path does not import NumPy. */
		if (gpushm_dtype_parse(text, &ret->type) == 0)
			return 0;
	}
	pair = object_call(types.dtype_module, "encode", "(O)", o);
	if (!pair || !PyArg_ParseTuple(pair, "OO;encode() returns (name, descr)", &name, &descr) ||
	    args_text(name, "dtype", &text) < 0)
		return -1;
	if (error_result(gpushm_dtype_parse(text, &ret->type)) < 0)
		return -1;
	if (descr == Py_None)
		return 0;
	if (args_text(descr, "descr", &text) < 0)
		return -1;
	ret->descr = Py_NewRef(descr);
	return 0;
}

void dtype_done(struct dtype *d)
{
	Py_CLEAR(d->descr);
}

PyObject *dtype_name(struct gpushm_dtype t)
{
	char name[32];
	int r = gpushm_dtype_format(t, name, sizeof(name));

	return r < 0 ? error_raise(r) : PyUnicode_FromString(name);
}

/* Strides of elements without gaps in Fortran order. A product that overflows wraps around:
 * libgpushm refuses the layout. */
static void fortran_strides(const struct shape *shape, uint64_t itemsize, struct shape *ret)
{
	ret->ndim = shape->ndim;
	for (int i = 0; i < shape->ndim; i++) {
		ret->dims[i] = (int64_t)itemsize;
		itemsize *= (uint64_t)(shape->dims[i] > 0 ? shape->dims[i] : 1);
	}
}

static int strides_from(PyObject *strides, char order, struct layout *l)
{
	if (strides == Py_None && order == 'C')
		return 0;
	l->spec.strides = l->strides.dims;
	if (strides == Py_None) {
		fortran_strides(&l->shape, gpushm_dtype_bits(l->dtype.type) / 8, &l->strides);
		return 0;
	}
	if (shape_from(strides, "strides", &l->strides) < 0)
		return -1;
	if (l->strides.ndim == l->shape.ndim)
		return 0;
	return error_python(PyExc_ValueError, "%d strides were given for %d dimensions",
			    l->strides.ndim, l->shape.ndim);
}

int layout_from(PyObject *dtype, PyObject *shape, PyObject *strides, char order, struct layout *ret)
{
	*ret = (struct layout){ 0 };
	if (shape_from(shape, "shape", &ret->shape) < 0 || dtype_from(dtype, &ret->dtype) < 0)
		return -1;
	ret->spec = (struct gpushm_array_spec){ .struct_size = sizeof(ret->spec),
						.dtype = ret->dtype.type,
						.ndim = ret->shape.ndim,
						.shape = ret->shape.dims };
	if (ret->dtype.descr)
		ret->spec.descr = PyUnicode_AsUTF8AndSize(ret->dtype.descr, NULL);
	return strides_from(strides, order, ret);
}

void array_layout_done(struct layout *l)
{
	dtype_done(&l->dtype);
}

void layouts_done(struct layouts *l)
{
	for (size_t i = 0; i < l->n; i++)
		array_layout_done(&l->layouts[i]);
	PyMem_Free(l->layouts);
	PyMem_Free(l->specs);
}

static int read_layout(const char *name, PyObject *value, struct layout *ret)
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
		    read_layout(name, value, &l->layouts[i]) < 0)
			return 0;
		l->specs[i] = l->layouts[i].spec;
	}
	return 1;
}

/* ---- options ---- */

void options_done(struct options *o)
{
	Py_CLEAR(o->keep);
	PyMem_Free(o->attrs);
	o->attrs = NULL;
}

/* The bytes of a str or of anything that bytes() takes. */
static int value_from(PyObject *value, struct options *o, struct gpushm_attr *ret)
{
	_cleanup_(drop_object) PyObject *bytes = NULL;
	char *data;
	Py_ssize_t n;

	bytes = PyUnicode_Check(value) ? PyUnicode_AsUTF8String(value) : PyBytes_FromObject(value);
	if (!bytes || PyBytes_AsStringAndSize(bytes, &data, &n) < 0 ||
	    PyList_Append(o->keep, bytes) < 0)
		return -1;
	ret->value = data;
	ret->size = (size_t)n;
	return 0;
}

int options_attrs(PyObject *attrs, struct options *o)
{
	_cleanup_(drop_object) PyObject *items = NULL;
	Py_ssize_t n;

	if (attrs == Py_None)
		return 0;
	items = PyMapping_Items(attrs);
	n = items ? PyList_Size(items) : -1;
	o->keep = PyList_New(0);
	if (n < 0 || !o->keep || PyList_Append(o->keep, items) < 0)
		return -1;
	if (n > OPTIONS_ATTRS_MAX)
		return error_python(PyExc_ValueError, "a buffer has at most %d attributes",
				    OPTIONS_ATTRS_MAX);
	o->attrs = PyMem_Calloc((size_t)n + 1, sizeof(*o->attrs));
	if (!o->attrs) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyList_GetItem(items, i), *value;

		o->attrs[i].struct_size = sizeof(*o->attrs);
		if (!PyArg_ParseTuple(item, "sO;attrs are a dict of str to bytes or str",
				      &o->attrs[i].key, &value) ||
		    value_from(value, o, &o->attrs[i]) < 0)
			return -1;
	}
	o->o.attrs = o->attrs;
	o->o.n_attrs = (size_t)n;
	return 0;
}

/* 1, or 0 where it was not given. */
static int number_from(PyObject *number, long long max, const char *what, long long *ret)
{
	if (!number || number == Py_None)
		return 0;
	*ret = PyLong_AsLongLong(number);
	if (*ret == -1 && PyErr_Occurred())
		return -1;
	if (*ret >= 0 && *ret <= max)
		return 1;
	return error_python(PyExc_ValueError, "%s is a number from 0 to %lld, or None, not %lld",
			    what, max, *ret);
}

/* As number_from(). */
static int device_from(PyObject *device, long long *ret)
{
	if (!device || !PyUnicode_Check(device))
		return number_from(device, INT_MAX, "device", ret);
	*ret = GPUSHM_CURRENT_DEVICE;
	if (PyUnicode_CompareWithASCIIString(device, "current") == 0)
		return 1;
	return error_python(PyExc_ValueError,
			    "device is a GPU's ordinal, \"current\" for the one that this thread "
			    "works on, or None for the buffer's own, not %R",
			    device);
}

/* A mode as a uint32_t. Refuses 0, which libgpushm reads as "the default". */
static int mode_arg(PyObject *o, void *ret)
{
	uint32_t mode;

	if (!u32_arg(o, &mode))
		return 0;
	if (mode == 0) {
		PyErr_SetString(PyExc_ValueError, "mode 0 lets nobody open it: 0o600 lets its "
						  "owner, 0o400 to read only");
		return 0;
	}
	*(uint32_t *)ret = mode;
	return 1;
}

int options_device(PyObject *device, struct options *ret)
{
	long long ordinal = 0;
	int given = device_from(device, &ordinal);

	if (given < 0)
		return -1;
	ret->o.struct_size = sizeof(ret->o);
	ret->opening.struct_size = sizeof(ret->opening);
	ret->o.device = ret->opening.device = (int)ordinal;
	ret->o.flags = ret->opening.flags = given ? GPUSHM_SET_DEVICE : 0;
	return 0;
}

int options_arg(PyObject *o, void *ret)
{
	int transient, has_gid, refuse_dirty = 0;
	PyObject *attrs, *gid, *device;
	struct options *options = ret;
	long long group = 0;
	uint32_t mode;

	if (!PyArg_ParseTuple(o, "zO&pOO&OO|p:options", &options->o.pool, mode_arg, &mode,
			      &transient, &attrs, deadline_arg, &options->wait, &gid, &device,
			      &refuse_dirty))
		return 0;
	has_gid = number_from(gid, UINT32_MAX, "gid", &group);
	if (has_gid < 0 || options_device(device, options) < 0)
		return 0;
	options->o.mode = (mode_t)mode;
	options->o.gid = (gid_t)group;
	options->o.flags |= (transient ? GPUSHM_TRANSIENT : 0) | (has_gid ? GPUSHM_SET_GID : 0);
	options->opening.flags |= refuse_dirty ? GPUSHM_REFUSE_DIRTY : 0;
	return options_attrs(attrs, options) == 0;
}
