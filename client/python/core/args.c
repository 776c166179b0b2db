/* SPDX-License-Identifier: MIT
 *
 * Names looked up among those of a signature; the messages are Python's own.
 */
#include "client/python/core/args.h"

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

	if (n > s->positional) {
		PyErr_Format(PyExc_TypeError,
			     "%s() takes at most %zd positional arguments (%zd given)", s->function,
			     s->positional, n);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		ret[i] = given[i];
	/* Their values stand behind those by position. */
	for (Py_ssize_t i = 0; i < n_keywords; i++)
		if (take_keyword(s, n, PyTuple_GetItem(keywords, i), given[n + i], ret) < 0)
			return -1;
	for (Py_ssize_t i = 0; i < s->required; i++) {
		if (ret[i])
			continue;
		PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s' (pos %zd)",
			     s->function, s->names[i], i + 1);
		return -1;
	}
	return 0;
}

int args_text(PyObject *o, const char *what, const char **ret)
{
	Py_ssize_t n;
	const char *text;

	if (!PyUnicode_Check(o)) {
		PyErr_Format(PyExc_TypeError, "%s must be a str, not %R", what,
			     (PyObject *)Py_TYPE(o));
		return -1;
	}
	text = PyUnicode_AsUTF8AndSize(o, &n);
	if (!text)
		return -1;
	if (strlen(text) != (size_t)n) {
		PyErr_Format(PyExc_ValueError, "%s: embedded null character", what);
		return -1;
	}
	*ret = text;
	return 0;
}

int args_u64(PyObject *o, void *ret)
{
	_cleanup_(drop_object) PyObject *number = PyNumber_Index(o);
	unsigned long long n = number ? PyLong_AsUnsignedLongLong(number) : 0;

	if (PyErr_Occurred())
		return 0;
	*(uint64_t *)ret = n;
	return 1;
}

int args_u32(PyObject *o, void *ret)
{
	uint64_t n;

	if (!args_u64(o, &n))
		return 0;
	if (n > UINT32_MAX) {
		PyErr_Format(PyExc_OverflowError, "%R has more than 32 bits", o);
		return 0;
	}
	*(uint32_t *)ret = (uint32_t)n;
	return 1;
}
