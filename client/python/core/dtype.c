/* SPDX-License-Identifier: MIT
 *
 * From a dtype argument to libgpushm's numbers, and back to a name.
 */
#include "client/python/core/dtype.h"

#include "client/python/core/args.h"
#include "client/python/core/error.h"

static int from_words(PyObject *name, PyObject *descr, struct dtype *ret)
{
	struct dtype d = { 0 };
	const char *text;
	int r;

	if (args_text(name, "dtype", &text) < 0)
		return -1;
	r = gpushm_dtype_parse(text, &d.type);
	if (r < 0) {
		error_raise(r);
		return -1;
	}
	if (descr != Py_None) {
		if (args_text(descr, "descr", &d.words) < 0)
			return -1;
		d.descr = Py_NewRef(descr);
	}
	*ret = d;
	return 0;
}

int dtype_from(PyObject *o, struct dtype *ret)
{
	_cleanup_(drop_object) PyObject *told = NULL;
	const char *text;

	if (PyUnicode_Check(o)) {
		if (args_text(o, "dtype", &text) < 0)
			return -1;
		*ret = (struct dtype){ 0 };
		/* Without NumPy, and without a look at its names. */
		if (gpushm_dtype_parse(text, &ret->type) == 0)
			return 0;
	}
	told = object_call_python("gpushm._dtype", "encode", "(O)", o);
	if (!told)
		return -1;
	if (!PyTuple_Check(told) || PyTuple_Size(told) != 2) {
		PyErr_SetString(PyExc_TypeError, "gpushm._dtype.encode() gives (name, descr)");
		return -1;
	}
	return from_words(PyTuple_GetItem(told, 0), PyTuple_GetItem(told, 1), ret);
}

void dtype_done(struct dtype *d)
{
	Py_CLEAR(d->descr);
	d->words = NULL;
}

PyObject *dtype_name(struct gpushm_dtype t)
{
	char name[32];
	int r = gpushm_dtype_format(t, name, sizeof(name));

	return r < 0 ? error_raise(r) : PyUnicode_FromString(name);
}
