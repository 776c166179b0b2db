/* SPDX-License-Identifier: MIT
 *
 * Options: numbers and borrowed strings for libgpushm, with the objects that they are borrowed
 * from.
 */
#include "client/python/core/options.h"

#include "client/python/core/args.h"

void options_done(struct options *o)
{
	Py_CLEAR(o->keep);
	PyMem_Free(o->attrs);
	o->attrs = NULL;
}

/* The bytes of a str or of anything that bytes() takes; kept. */
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

static int attrs_from(PyObject *attrs, struct options *o)
{
	_cleanup_(drop_object) PyObject *items = PyMapping_Items(attrs);
	Py_ssize_t n = items ? PyList_Size(items) : -1;

	o->keep = PyList_New(0);
	if (n < 0 || !o->keep || PyList_Append(o->keep, items) < 0)
		return -1;
	if (n > OPTIONS_ATTRS_MAX) {
		PyErr_Format(PyExc_ValueError, "a buffer has at most %d attributes",
			     OPTIONS_ATTRS_MAX);
		return -1;
	}
	o->attrs = PyMem_Calloc((size_t)n + 1, sizeof(*o->attrs));
	if (!o->attrs) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyList_GetItem(items, i), *value;

		if (!PyArg_ParseTuple(item, "sO;attrs are a dict of str to bytes or str",
				      &o->attrs[i].key, &value) ||
		    value_from(value, o, &o->attrs[i]) < 0)
			return -1;
	}
	o->o.attrs = o->attrs;
	o->o.n_attrs = (size_t)n;
	return 0;
}

static int number_from(PyObject *number, long long max, const char *what, long long *ret)
{
	long long n = PyLong_AsLongLong(number);

	if (n == -1 && PyErr_Occurred())
		return -1;
	if (n < 0 || n > max) {
		PyErr_Format(PyExc_ValueError, "%s is a number from 0 to %lld, or None, not %lld",
			     what, max, n);
		return -1;
	}
	*ret = n;
	return 0;
}

int options_mode(PyObject *o, void *ret)
{
	uint32_t mode;

	if (!args_u32(o, &mode))
		return 0;
	if (mode == 0) {
		PyErr_SetString(PyExc_ValueError, "mode 0 lets nobody open it: 0o600 lets its "
						  "owner, 0o400 to read only");
		return 0;
	}
	*(uint32_t *)ret = mode;
	return 1;
}

int options_from(const struct options_words *words, struct options *ret)
{
	struct gpushm_options *o = &ret->o;
	long long n;

	*o = (struct gpushm_options){ .struct_size = sizeof(*o),
				      .pool = words->pool,
				      .mode = (mode_t)words->mode };
	o->flags = (words->transient ? GPUSHM_TRANSIENT : 0) |
		   (words->refuse_dirty ? GPUSHM_REFUSE_DIRTY : 0);
	if (words->gid && words->gid != Py_None) {
		if (number_from(words->gid, UINT32_MAX, "gid", &n) < 0)
			return -1;
		o->gid = (gid_t)n;
		o->flags |= GPUSHM_SET_GID;
	}
	if (words->device && words->device != Py_None) {
		if (number_from(words->device, INT_MAX, "device", &n) < 0)
			return -1;
		o->device = (int)n;
		o->flags |= GPUSHM_SET_DEVICE;
	}
	if (words->attrs && words->attrs != Py_None)
		return attrs_from(words->attrs, ret);
	return 0;
}
