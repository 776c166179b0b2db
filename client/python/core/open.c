/* SPDX-License-Identifier: MIT
 *
 * open() and open_many(). The road of a plain open() is the one that people measure: it parses its
 * arguments, makes the request and two objects, and runs no line of Python.
 */
#include "client/python/core/open.h"

#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/error.h"
#include "client/python/core/options.h"
#include "client/python/core/view.h"

struct open_ask {
	struct ask ask;
	PyObject *name_object; /* borrowed */
	const char *name;      /* its text */
	enum gpushm_access access;
	const struct gpushm_options *options;
	struct gpushm_buffer *ret;
};

static int run_open(struct gpushm *c, struct ask *ask)
{
	struct open_ask *a = container_of(ask, struct open_ask, ask);

	return gpushm_open(c, a->name, a->access, ask->timeout_ms, a->options, &a->ret);
}

static bool time_may_heal(int r)
{
	return r == -ENOENT || r == -EAGAIN || r == -EUCLEAN;
}

/* The connection's link is not made to wait: another one waits for the name, and then the first is
 * asked again. A name may be gone by then, and come again. */
static int open_in_time(struct connection *c, struct open_ask *a, const struct deadline *d)
{
	int r = connection_try(c, &a->ask);

	while (time_may_heal(r) && deadline_turn(d) > 0) {
		/* Who waits for a buffer to be clean has to open it: that it is published is known.
		 */
		if (a->options->flags & GPUSHM_REFUSE_DIRTY)
			return connection_try_apart(c, &a->ask, d);
		r = connection_try_wait(c, a->name, d);
		if (r == 0)
			r = connection_try(c, &a->ask);
	}
	return r;
}

static struct buffer *attach(PyObject *self, struct open_ask *a, const struct deadline *d)
{
	struct connection *c = connection_of(self);
	struct buffer *b = NULL;
	int r;

	if (!c)
		return NULL;
	r = open_in_time(c, a, d);
	if (r < 0)
		error_raise(r);
	else
		b = buffer_new(c, a->ret, a->name_object);
	Py_DECREF((PyObject *)c);
	return b;
}

static int access_from(const char *word, enum gpushm_access *ret)
{
	if (strcmp(word, "r") == 0)
		*ret = GPUSHM_READ;
	else if (strcmp(word, "r+") == 0)
		*ret = GPUSHM_WRITE;
	else
		PyErr_Format(PyExc_ValueError,
			     "access is \"r\" to read or \"r+\" to read and write, not \"%s\"",
			     word);
	return PyErr_Occurred() ? -1 : 0;
}

/* ---- which array ---- */

/* *a is there if r is 0, and is taken over. */
static struct array *found(struct buffer *b, int r, struct gpushm_array **a)
{
	return r < 0 ? error_raise(r) : array_new(b, *a);
}

/* The buffer's own array, or the only one; bytes, where there is none. */
static struct array *only_array(struct buffer *b)
{
	size_t n = gpushm_buffer_arrays(b->buffer);
	int64_t bytes = (int64_t)gpushm_buffer_bytes(b->buffer);
	struct gpushm_array_spec spec = { .ndim = 1, .shape = &bytes };
	struct gpushm_array *a = NULL;
	int r;

	if (n == 1)
		return found(b, gpushm_array_at(b->buffer, 0, &a), &a);
	if (n == 0) {
		gpushm_dtype_parse("uint8", &spec.dtype);
		return found(b, gpushm_array_over(b->buffer, &spec, &a), &a);
	}
	r = gpushm_array_get(b->buffer, "", &a);
	if (r == -ENOENT)
		return error_format(
			ERROR_NOT_FOUND, ENOENT,
			"buffer \"%s\" has %zu arrays: say which one with array=, or have all "
			"with open_many()",
			gpushm_buffer_name(b->buffer), n);
	return found(b, r, &a);
}

static struct array *pick_array(struct buffer *b, const char *name)
{
	struct gpushm_array *a = NULL;

	return name ? found(b, gpushm_array_get(b->buffer, name, &a), &a) : only_array(b);
}

/* What was given in open() instead of what is described; None: as described. */
struct overrides {
	PyObject *dtype, *shape, *strides, *offset;
};

static bool overridden(const struct overrides *o)
{
	return o->dtype != Py_None || o->shape != Py_None || o->strides != Py_None ||
	       o->offset != Py_None;
}

/* Nothing of what is described is needed: a buffer of many arrays has none that is meant. */
static bool all_given(const struct overrides *o)
{
	return o->dtype != Py_None && o->shape != Py_None && o->offset != Py_None;
}

/* What was given, or the described array's attribute; a new reference. */
static PyObject *given_or(PyObject *given, const struct array *described, const char *attribute)
{
	return given != Py_None ? Py_NewRef(given)
				: PyObject_GetAttrString((PyObject *)described, attribute);
}

/* dtype, shape and offset are the described array's where they are not given; described is NULL
 * where all are. With a dtype of another size, the described shape would mean something else. */
static PyObject *laid_over(struct buffer *b, const struct array *described,
			   const struct overrides *o)
{
	_cleanup_(drop_object)
		PyObject *dtype = given_or(o->dtype, described, "dtype"),
			 *shape = dtype ? given_or(o->shape, described, "shape") : NULL,
			 *at = shape ? given_or(o->offset, described, "offset") : NULL;
	uint64_t offset;

	if (!at || !args_u64(at, &offset))
		return NULL;
	return view_over(b, dtype, shape, o->strides, offset);
}

/* The Array that open() returns. */
static PyObject *choose(struct buffer *b, const char *name, const struct overrides *o)
{
	bool alone = all_given(o) && !name;
	_cleanup_(drop_object) PyObject *described = alone ? NULL : (PyObject *)pick_array(b, name);
	PyObject *result;

	if (!described && !alone)
		return NULL;
	result = overridden(o) ? laid_over(b, (struct array *)described, o) : Py_NewRef(described);
	if (result)
		array_own_buffer((struct array *)result);
	return result;
}

/* ---- the verbs ---- */

/* A question as the arguments of both verbs make it; NULL: not given. */
struct wish {
	struct open_ask ask;
	struct options options;
	struct deadline timeout;
};

static int wish_from(PyObject *const *name_access_timeout, PyObject *device, PyObject *refuse_dirty,
		     struct wish *ret)
{
	PyObject *access = name_access_timeout[1], *timeout = name_access_timeout[2];
	struct options_words w = { .device = device };
	const char *word = "r";

	ret->ask = (struct open_ask){ .ask.run = run_open,
				      .name_object = name_access_timeout[0],
				      .options = &ret->options.o };
	ret->timeout = (struct deadline){ 0 };
	if (args_text(name_access_timeout[0], "name", &ret->ask.name) < 0 ||
	    (access && args_text(access, "access", &word) < 0) ||
	    access_from(word, &ret->ask.access) < 0 ||
	    (timeout && !deadline_from(timeout, &ret->timeout)))
		return -1;
	w.refuse_dirty = refuse_dirty ? PyObject_IsTrue(refuse_dirty) : 0;
	return w.refuse_dirty < 0 ? -1 : options_from(&w, &ret->options);
}

enum {
	NAME,
	ACCESS,
	TIMEOUT,
	ARRAY,
	DTYPE,
	SHAPE,
	STRIDES,
	OFFSET,
	DEVICE,
	REFUSE_DIRTY,
	OPEN_ARGS
};

static PyObject *open(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
	static const char *const names[] = { "name",   "access",       "timeout", "array",
					     "dtype",  "shape",	       "strides", "offset",
					     "device", "refuse_dirty", NULL };
	static const struct args_signature signature = { "open", names, 3, 1 };
	PyObject *given[OPEN_ARGS] = { 0 }, *result;
	const char *array = NULL;
	struct wish wish;
	struct buffer *b;

	given[ARRAY] = given[DTYPE] = given[SHAPE] = given[STRIDES] = given[OFFSET] = Py_None;
	if (args_take(&signature, args, n, keywords, given) < 0 ||
	    (given[ARRAY] != Py_None && args_text(given[ARRAY], "array", &array) < 0) ||
	    wish_from(given, given[DEVICE], given[REFUSE_DIRTY], &wish) < 0)
		return NULL;
	b = attach(self, &wish.ask, &wish.timeout);
	if (!b)
		return NULL;
	result = choose(b, array,
			&(struct overrides){ given[DTYPE], given[SHAPE], given[STRIDES],
					     given[OFFSET] });
	/* The array has it from now on. */
	Py_DECREF((PyObject *)b);
	return result;
}

static PyObject *open_many(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
	static const char *const names[] = { "name",   "access",       "timeout",
					     "device", "refuse_dirty", NULL };
	static const struct args_signature signature = { "open_many", names, 3, 1 };
	PyObject *given[5] = { 0 };
	struct wish wish;

	if (args_take(&signature, args, n, keywords, given) < 0 ||
	    wish_from(given, given[3], given[4], &wish) < 0)
		return NULL;
	return (PyObject *)attach(self, &wish.ask, &wish.timeout);
}

PyMethodDef open_verbs[] = {
	{ "open", (PyCFunction)(void (*)(void))open, METH_FASTCALL | METH_KEYWORDS,
	  "open($self, name, access='r', timeout=0, *, array=None, dtype=None,\n"
	  "     shape=None, strides=None, offset=None, device=None, refuse_dirty=False)\n--\n\n"
	  "Attaches to a published buffer and returns its array; copies nothing.\n\n"
	  "access: 'r', or 'r+' to write to a shared buffer. timeout: seconds to wait for the\n"
	  "name to be published, None for ever; other threads are not kept waiting, and\n"
	  "Ctrl-C is heard. array: which one, where there are many. dtype, shape, strides and\n"
	  "offset (both in bytes, the offset from the buffer's start) lay another array over\n"
	  "the buffer than the described one, checked against it. device: map it for that\n"
	  "GPU, which has peer access. refuse_dirty: do not take a buffer whose writer died,\n"
	  "or wait for it to be clean.\n\n"
	  "close(), the end of its with block, or the end of the last reference gives it\n"
	  "back; see close() for views and tensors that are alive by then. Asks the daemon: one "
	  "round trip of some 10 us, without the GIL. Errors:\n"
	  "NotFound, NotPublished, Timeout, AccessDenied, ReadOnly (to write to a sealed\n"
	  "one), Dirty, LimitReached, DeviceFailed, LayoutError, DaemonGone." },
	{ "open_many", (PyCFunction)(void (*)(void))open_many, METH_FASTCALL | METH_KEYWORDS,
	  "open_many($self, name, access='r', timeout=0, *, device=None,\n"
	  "          refuse_dirty=False)\n--\n\n"
	  "Attaches to a published buffer of many arrays: one round trip, however many there\n"
	  "are. The Buffer is a mapping of their names to Arrays. Otherwise as open()." },
	{ NULL, NULL, 0, NULL }
};
