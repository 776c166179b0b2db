/* SPDX-License-Identifier: MIT
 *
 * Arguments: what people write in Python, read into the structs that libgpushm takes. Functions
 * that end in _arg are converters for "O&" of PyArg_Parse...: they return 1, or 0 after raising.
 */
#pragma once

#include "client/gpushm_array.h"
#include "client/python/core/object.h"

/* ---- METH_FASTCALL | METH_KEYWORDS ----
 *
 * For the calls whose time people measure: PyArg_ParseTupleAndKeywords() would need a tuple and a
 * dict for each call.
 */

/* A function's arguments, in the order of its signature. */
struct args_signature {
	const char *function;
	const char *const *names; /* NULL behind the last */
	Py_ssize_t positional;	  /* how many may be given by position */
	Py_ssize_t required;	  /* how many must be given */
};

/* Writes a borrowed object for each name to ret; entries of arguments that are not given keep their
 * value. */
int args_take(const struct args_signature *s, PyObject *const *given, Py_ssize_t n,
	      PyObject *keywords, PyObject **ret);

/* PyArg_ParseTupleAndKeywords() with the names of a function's arguments, for other calls. */
#define args_parse(args, kwargs, function, format, ...)                                   \
	PyArg_ParseTupleAndKeywords(args, kwargs, format, (char **)ARGS_##function.names, \
				    __VA_ARGS__)

/* The first of an __exit__'s arguments; None without arguments. Borrowed. */
PyObject *args_first(PyObject *args);

/* ---- text and numbers ---- */

/* A str without a NUL inside; *ret is borrowed from o. */
int args_text(PyObject *o, const char *what, const char **ret);

/* Numbers from 0 up, from any object that has __index__, as NumPy's integers have. */
int u64_arg(PyObject *o, void *ret);
int u32_arg(PyObject *o, void *ret);

/* ---- deadlines ----
 *
 * Waiting is done in turns of some 100 ms, so that Python handles Ctrl-C in between.
 */

struct deadline {
	uint64_t at; /* clock_deadline(); 0: do not wait; GPUSHM_WAIT_FOREVER */
};

/* Seconds as a number from 0, or None for ever. */
int deadline_arg(PyObject *seconds, void *ret);

/* Whether a timeout was given; its time may be over by now. */
static inline bool deadline_waits(const struct deadline *d)
{
	return d->at != 0;
}

/* The time that is left in ms, or GPUSHM_WAIT_FOREVER. */
uint64_t deadline_left(const struct deadline *d);

/* The next turn in ms; 0: the time is over. */
uint64_t deadline_turn(const struct deadline *d);

/* ---- shapes, types of elements, layouts ---- */

struct shape {
	int ndim;
	int64_t dims[GPUSHM_MAX_NDIM];
};

/* A sequence of integers, or one integer; `what` is its name in messages. */
int shape_from(PyObject *o, const char *what, struct shape *ret);

/* Whether an array has that shape. */
bool shape_is(const struct gpushm_array *a, int ndim, const int64_t *dims);

/* A tuple of n integers. */
PyObject *shape_tuple(const int64_t *dims, int n);

/* 'C' or 'F' from "C" or "F"; 0: raised. */
char order_from(const char *word);

struct dtype {
	struct gpushm_dtype type;
	PyObject *descr; /* a record's fields as a str; owned; NULL: no record */
};

/* libgpushm's and NumPy's names are read here; gpushm._dtype translates everything else: NumPy's
 * own objects, Python's types, torch's. The caller ends it with dtype_done(). */
int dtype_from(PyObject *o, struct dtype *ret);
void dtype_done(struct dtype *d);

/* "float32". */
PyObject *dtype_name(struct gpushm_dtype t);

/* An array's layout; the spec points into the struct, which therefore must stay where it is. */
struct layout {
	struct dtype dtype;
	struct shape shape, strides;
	struct gpushm_array_spec spec;
};

/* strides None: those of the order, 'C' or 'F'. libgpushm checks the sizes. The caller ends it with
 * array_layout_done(), also after a failure. */
int layout_from(PyObject *dtype, PyObject *shape, PyObject *strides, char order,
		struct layout *ret);
void array_layout_done(struct layout *l);

/* Those of many arrays: what create_many(), stream() and Buffer.describe() get as a dict. */
struct layouts {
	size_t n;
	struct layout *layouts;		 /* owned */
	struct gpushm_array_spec *specs; /* theirs, in a row; owned */
};

/* For "O&": a list of (name, (shape, dtype, strides or None, offset, order if not C)), which keeps
 * the names. All are read before the daemon is asked. The caller ends *ret with layouts_done(),
 * also after a failure. */
int layouts_arg(PyObject *items, void *ret);
void layouts_done(struct layouts *l);

/* ---- options of create() and open() ---- */

#define OPTIONS_ATTRS_MAX 64

struct options {
	struct gpushm_create_options o;
	struct gpushm_open_options opening;
	struct deadline wait;
	PyObject *keep;		   /* a list of the objects that attrs point into; owned; NULL */
	struct gpushm_attr *attrs; /* owned; NULL */
};

/* An ordinal, "current" or None, for both structs, which are zeroed. NULL is None. */
int options_device(PyObject *device, struct options *ret);
/* A dict of str to bytes or str, or None. The caller ends it with options_done(), also after a
 * failure. */
int options_attrs(PyObject *attrs, struct options *ret);
/* A tuple: pool, mode, transient, attrs, wait, gid, device, perhaps refuse_dirty; as
 * options_attrs(). */
int options_arg(PyObject *o, void *ret);
void options_done(struct options *o);
