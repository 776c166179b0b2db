/* SPDX-License-Identifier: MIT
 *
 * Arguments as METH_FASTCALL | METH_KEYWORDS brings them: no tuple and no dict is made for a call,
 * which PyArg_ParseTupleAndKeywords() would want. For calls whose time is measured.
 */
#ifndef GPUSHM_PYTHON_ARGS_H
#define GPUSHM_PYTHON_ARGS_H

#include "client/python/core/object.h"

/* A function's arguments, in the order of its signature. */
struct args_signature {
	const char *function;
	const char *const *names; /* NULL behind the last */
	Py_ssize_t positional;	  /* so many of the first may be given by position */
	Py_ssize_t required;	  /* so many of the first must be given */
};

/* Writes a borrowed object for each name to ret, and leaves what was not given as it is. 0; -1:
 * TypeError was raised. */
int args_take(const struct args_signature *s, PyObject *const *given, Py_ssize_t n,
	      PyObject *keywords, PyObject **ret);

/* A str without a NUL inside, borrowed from o. 0; -1: raised. */
int args_text(PyObject *o, const char *what, const char **ret);

/* For PyArg_Parse...'s O&: a number from 0, of 64 bits or of 32, from whatever has an __index__, as
 * NumPy's integers have. 1, or 0: raised. */
int args_u64(PyObject *o, void *ret);
int args_u32(PyObject *o, void *ret);

#endif
