/* SPDX-License-Identifier: MIT
 *
 * What every file of the core needs of Python: ownership of objects, the package's types, calls
 * into its Python modules, and its exceptions. Every file of the core includes this header first,
 * because Python.h must be the first header.
 *
 * Functions that return a pointer return NULL after they have raised an exception; functions that
 * return an int return -1 then, and 0 otherwise. Comments name the exceptions to this rule only.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000 /* one build for Python 3.11 and all later versions */
#endif
#include <Python.h>
#include <structmember.h>

#include "client/gpushm.h"
#include "proto/base/own.h"

#include "python_tables.h" /* DOC_Watch_next, SLOTS_Watch: tables.py makes them of the stub */

#include <stdbool.h>
#include <string.h>

/* For _cleanup_(). */
static inline void drop_object(PyObject **o)
{
	Py_CLEAR(*o);
}

/* A statement during which other threads run. */
#define WITHOUT_GIL(statement)         \
	do {                           \
		Py_BEGIN_ALLOW_THREADS \
		statement;             \
		Py_END_ALLOW_THREADS   \
	} while (0)

/* A row of a table of python_tables.h. The type of the function says whether it takes keywords, and
 * then with args_take() or not; flags: how it takes the arguments if it does not. */
/* clang-format off */
#define METHOD(name, f, flags, doc)                                                             \
	{                                                                                       \
		name, (PyCFunction)(void (*)(void))(f),                                         \
		_Generic(&(f), PyCFunction : flags,                                             \
			 PyCFunctionWithKeywords : METH_VARARGS | METH_KEYWORDS,                \
			 _PyCFunctionFastWithKeywords : METH_FASTCALL | METH_KEYWORDS), doc     \
	}
/* clang-format on */

/* The function that reads an attribute, of the struct `self`. */
#define GETTER(name, struct_, value)                     \
	static PyObject *name(PyObject *o, void *unused) \
	{                                                \
		struct_ *self = (struct_ *)o;            \
                                                         \
		return value;                            \
	}

/* The core's types and what the package registers once. open() and create() return objects of the
 * *_made types: the package's subclasses, which add methods written in Python. */
struct types {
	PyTypeObject *connection, *buffer, *array;
	PyTypeObject *buffer_made, *array_made;
	PyObject *dtype_module, *driver_module, *asyncio_module, *libraries_module, *meta_module,
		*unpublished_module;
};
extern struct types types;

/* A heap type, which its file keeps in *ret. */
struct type_row {
	PyType_Spec spec;
	PyTypeObject **ret, **base; /* base: NULL: object */
};

/* The spec of a type of which Python's code makes no objects. */
#define TYPE_SPEC(name_, struct_, flags_, slots_)                                           \
	{                                                                                   \
		.name = name_, .basicsize = sizeof(struct_),                                \
		.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | (flags_), \
		.slots = slots_                                                             \
	}

/* Makes it and adds it to the module under the last word of the spec's name. The module keeps it
 * alive. */
int types_add(PyObject *module, struct type_row *row);

/* The beginning of each struct that is an object, and the PyMemberDefs of its type. */
#define OBJECT_HEAD   \
	PyObject_HEAD \
	PyObject *weakrefs;
extern PyMemberDef object_members[];

/* A zeroed object of that type.
 *
 * Types that hold an object of the user's, or another object that does, take part in garbage
 * collection, since that object may refer back: a Reader, a Frame and a GraphFrame have a stream, a
 * timeout or a meta; a Buffer has the streams that its copies were queued on; a Stream and an Array
 * have a Buffer. A Connection and a Watch hold nothing but C, and need no part in it.
 *
 * Each cycle passes through an object of the user's: the references among these types make none.
 * So tp_clear drops the user's objects alone. The dict of streams may be emptied before a
 * destructor runs: a Frame is ended by tp_finalize, which comes before that, and a Buffer's end
 * waits for the GPU. */
void *object_new(PyTypeObject *type);
/* For tp_clear: drops what a member that is never NULL refers to. */
void object_to_none(PyObject **member);
/* The end of every tp_dealloc. */
void object_free(void *self);

/* __enter__ and __exit__ of types that have none of their own: the object itself; close(). */
PyObject *Closing_enter(PyObject *o, PyObject *unused);
PyObject *Closing_exit(PyObject *o, PyObject *unused);

/* None where r is 0. Where r is negative: NULL, as error_raise(). */
PyObject *object_none(int r);

/* For tp_iter: over keys(). */
PyObject *object_iterate(PyObject *o);

/* A text as a str, and an address as an int; None where it is NULL. */
PyObject *object_text(const char *text);
PyObject *object_address(void *p);

/* Appends to *list and takes the item over. Where the item is NULL or this fails, *list becomes
 * NULL, and an exception is set. */
void object_append(PyObject **list, PyObject *item);

/* Calls a function of one of the modules above. The format makes a tuple, as for
 * PyObject_CallFunction(). */
PyObject *object_call(PyObject *module, const char *function, const char *format, ...);
/* For a call whose result nobody needs, which it drops; NULL: the call has raised. */
int object_done(PyObject *result);

/* ---- exceptions ----
 *
 * What libgpushm returned becomes one of the package's exceptions, with gpushm_error() as its text.
 * All of them are OSErrors; most are also the exception that Python itself raises in such a case.
 */

/* Those that the core raises by their names; the table in object.c has others, too. */
enum error_kind {
	ERROR_BASE,
	ERROR_NOT_FOUND,
	ERROR_TIMEOUT,
	ERROR_READ_ONLY,
	ERROR_DAEMON,
	ERROR_IN_USE,
	ERROR_STATE,
	ERROR_ARGUMENT,
	ERROR_LAYOUT,
	ERROR_UNSUPPORTED,
	ERROR_PRODUCER,
	ERROR_DROPPED,
};

/* Makes the exceptions and adds them to the module. */
int error_init(PyObject *module);

/* Raises what this thread's last call of libgpushm returned, unless an exception is already set. No
 * other function of libgpushm may be called in between. Returns NULL, so that a check is one line.
 */
void *error_raise(int r);

/* Does the same with that exception, whatever errno it usually stands for. */
void *error_raise_as(enum error_kind kind, int r);

/* 0, or -1 after error_raise() where r is negative. */
int error_result(int r);

/* A declaration, for destructors: what is raised in the block is dropped, and what was raised
 * before stays. */
#define KEEP_RAISED \
	_cleanup_(error_put_back) __attribute__((unused)) struct raised before = error_take()

struct raised {
	PyObject *type, *value, *traceback;
};

static inline struct raised error_take(void)
{
	struct raised r;

	PyErr_Fetch(&r.type, &r.value, &r.traceback);
	return r;
}

static inline void error_put_back(struct raised *r)
{
	PyErr_Restore(r->type, r->value, r->traceback);
}

/* Raises one of Python's own exceptions; the format is that of PyErr_Format(). Returns -1. */
int error_python(PyObject *type, const char *format, ...);

/* Raises an error that the package found itself. Returns NULL; error_refuse() returns -1. */
void *error_format(enum error_kind kind, int number, const char *format, ...);
#define error_refuse(...) (error_format(__VA_ARGS__), -1)
