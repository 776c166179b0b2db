/* SPDX-License-Identifier: MIT
 *
 * Ownership words for Python's objects, and the types of this package. Every file of the core
 * includes this one first: Python.h wants to be the first header.
 */
#ifndef GPUSHM_PYTHON_OBJECT_H
#define GPUSHM_PYTHON_OBJECT_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000 /* one build for Python 3.11 and all that follow */
#endif
#include <Python.h>
#include <structmember.h>

#include "client/gpushm.h"
#include "proto/base/own.h"

#include <stdbool.h>
#include <string.h>

/* For _cleanup_(). */
static inline void drop_object(PyObject **o)
{
	Py_CLEAR(*o);
}

/* Drops what *o is and takes `with` over; NULL is allowed for both. */
static inline void replace_object(PyObject **o, PyObject *with)
{
	PyObject *old = *o;

	*o = with;
	Py_XDECREF(old);
}

/* The core's types, made once by module.c. What open() and create() make are the *_made: the
 * package's subclasses, which add what is written in Python. */
struct types {
	PyTypeObject *connection, *buffer, *array;
	PyTypeObject *buffer_made, *array_made;
};
extern struct types types;

/* A heap type from its spec, added to the module under the spec's last word. NULL: raised. The
 * module keeps it alive. */
PyTypeObject *types_add(PyObject *module, PyType_Spec *spec);

/* An object of that type, zeroed. NULL: raised. */
void *object_new(PyTypeObject *type);
/* The end of a tp_dealloc. */
void object_free(void *self);

/* Calls module.name(args...), format as for PyObject_CallFunction() and always a tuple. A module of
 * the package that the core needs is imported when it is needed: "gpushm._dtype". NULL: raised. */
PyObject *object_call_python(const char *module, const char *name, const char *format, ...);

#endif
