/* SPDX-License-Identifier: MIT
 *
 * open() and open_many(). People measure the time of a plain open(): it parses its arguments, sends
 * one request and makes two objects, and runs no line of Python.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/module.h"

struct open_ask {
	struct ask ask;
	PyObject *name_object; /* borrowed */
	const char *name;      /* its text */
	enum gpushm_access access;
	const struct gpushm_open_options *options;
	struct gpushm_buffer *ret;
};

static int run_open(struct gpushm *c, struct ask *ask)
{
	struct open_ask *a = container_of(ask, struct open_ask, ask);

	return gpushm_open(c, a->name, a->access, ask->timeout_ms, a->options, &a->ret);
}

/* Errors that may be gone on another try. */
static bool is_worth_a_wait(int r)
{
	return r == -ENOENT || r == -EAGAIN || r == -EUCLEAN || connection_is_turns_end(r);
}

/* Waits for the publication first; then opens wait until it is clean, or its memory is back. */
static int open_in_time(struct connection *c, struct open_ask *a, const struct deadline *d)
{
	int r = connection_try(c, &a->ask);

	if ((r == -ENOENT || r == -EAGAIN) && !(a->options->flags & GPUSHM_REFUSE_DIRTY) &&
	    deadline_waits(d)) {
		r = connection_try_wait(c, a->name, d);
		if (r < 0)
			return r;
		r = connection_try(c, &a->ask);
	}
	return is_worth_a_wait(r) && deadline_waits(d) ? connection_try_apart(c, &a->ask, d) : r;
}

static struct buffer *attach(PyObject *self, struct open_ask *a, const struct deadline *d)
{
	struct connection *c = connection_of(self);
	int r = c ? open_in_time(c, a, d) : -ECONNRESET;

	if (r < 0)
		return error_raise(r);
	return buffer_hinted(pybuffer_new(c, a->ret, a->name_object, NULL), a->options->flags);
}

int open_access_from(const char *word, enum gpushm_access *ret, uint32_t *ret_flags)
{
	*ret = strcmp(word, "r+") == 0 ? GPUSHM_WRITE : GPUSHM_READ;
	*ret_flags = strcmp(word, "c") == 0 ? GPUSHM_COPY_ON_WRITE : 0;
	if (strcmp(word, "r") == 0 || *ret == GPUSHM_WRITE || *ret_flags)
		return 0;
	return error_python(PyExc_ValueError,
			    "access is \"r\" to read, \"r+\" to read and write, or \"c\" to read "
			    "and to write to pages of one's own (copy-on-write), not \"%s\"",
			    word);
}

/* ---- which array ---- */

/* The array without a name, or the only one; all bytes where there is no array. */
static PyObject *only_array(struct buffer *b)
{
	size_t n = gpushm_buffer_arrays(b->buffer);
	int64_t bytes = (int64_t)gpushm_buffer_bytes(b->buffer);
	struct gpushm_array_spec spec = { sizeof(spec), .ndim = 1, .shape = &bytes };
	struct gpushm_array *a = NULL;
	int r;

	if (n == 1)
		return array_new(b, gpushm_array_at(b->buffer, 0, &a), &a);
	if (n == 0) {
		gpushm_dtype_parse("uint8", &spec.dtype);
		return array_new(b, gpushm_array_over(b->buffer, &spec, &a), &a);
	}
	r = gpushm_array_get(b->buffer, "", &a);
	if (r == -ENOENT)
		return error_format(
			ERROR_NOT_FOUND, ENOENT,
			"buffer \"%s\" has %zu arrays: say which one with array=, or have all "
			"with open_many()",
			gpushm_buffer_name(b->buffer), n);
	return array_new(b, r, &a);
}

/* The arguments of open() that replace parts of the array's own layout: dtype, shape, strides,
 * offset; None: not replaced. */
#define OVERRIDES 4

static bool overridden(PyObject *const o[OVERRIDES])
{
	return o[0] != Py_None || o[1] != Py_None || o[2] != Py_None || o[3] != Py_None;
}

/* The Array that open() returns. Where dtype, shape and offset are given, nothing of the buffer's
 * own layout is needed, so it does not matter how many arrays it has. */
static PyObject *choose(struct buffer *b, const char *name, PyObject *const o[OVERRIDES])
{
	bool alone = o[0] != Py_None && o[1] != Py_None && o[3] != Py_None && !name;
	_cleanup_(drop_object) PyObject *described = NULL;
	struct gpushm_array *a = NULL;
	PyObject *result;
	uint64_t offset;

	if (name)
		described = array_new(b, gpushm_array_get(b->buffer, name, &a), &a);
	else if (!alone)
		described = only_array(b);
	if (alone)
		result = u64_arg(o[3], &offset) ? view_over(b, o[0], o[1], o[2], offset) : NULL;
	else if (described && overridden(o))
		result =
			PyObject_CallMethod(described, "_laid_out", "OOOO", o[0], o[1], o[2], o[3]);
	else
		result = Py_XNewRef(described);
	b->owner = (struct array *)result;
	return result;
}

/* ---- the functions ---- */

/* The arguments that both functions have. */
struct open_args {
	struct open_ask ask;
	struct options options;
	struct deadline timeout;
};

/* given: name, access, timeout; NULL: not given. */
static int open_args_from(PyObject *const *given, PyObject *device, PyObject *refuse_dirty,
			  struct open_args *ret)
{
	PyObject *name = given[0], *access = given[1], *timeout = given[2];
	const char *word = "r";
	int refuse = refuse_dirty ? PyObject_IsTrue(refuse_dirty) : 0;
	uint32_t flags;

	*ret = (struct open_args){ 0 };
	ret->ask = (struct open_ask){ .ask.run = run_open,
				      .name_object = name,
				      .options = &ret->options.opening };
	if (args_text(name, "name", &ret->ask.name) < 0 ||
	    (access && args_text(access, "access", &word) < 0) ||
	    open_access_from(word, &ret->ask.access, &flags) < 0 ||
	    (timeout && !deadline_arg(timeout, &ret->timeout)))
		return -1;
	if (refuse < 0 || options_device(device, &ret->options) < 0)
		return -1;
	ret->options.opening.flags |= flags | (refuse ? GPUSHM_REFUSE_DIRTY : 0);
	return 0;
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

/* Reads the arguments of open() and open_async() into both. */
static int open_given(PyObject *const *args, Py_ssize_t n, PyObject *keywords,
		      PyObject *given[OPEN_ARGS], struct open_args *ret)
{
	const char *array;

	given[ARRAY] = given[DTYPE] = given[SHAPE] = given[STRIDES] = given[OFFSET] = Py_None;
	if (args_take(&ARGS_Connection_open, args, n, keywords, given) < 0 ||
	    (given[ARRAY] != Py_None && args_text(given[ARRAY], "array", &array) < 0))
		return -1;
	return open_args_from(given, given[DEVICE], given[REFUSE_DIRTY], ret);
}

/* array: a str, or None. Takes b over; NULL is allowed. */
static PyObject *chosen(struct buffer *b, PyObject *array, PyObject *const o[OVERRIDES])
{
	const char *name = NULL;
	PyObject *result = NULL;

	if (b && (array == Py_None || args_text(array, "array", &name) == 0))
		result = choose(b, name, o);
	/* The array has a reference of its own. */
	Py_XDECREF((PyObject *)b);
	return result;
}

PyObject *open_result(struct buffer *b)
{
	return chosen(b, Py_None, (PyObject *[]){ Py_None, Py_None, Py_None, Py_None });
}

PyObject *Connection_open(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
	PyObject *given[OPEN_ARGS] = { 0 };
	struct open_args arguments;

	if (open_given(args, n, keywords, given, &arguments) < 0)
		return NULL;
	return chosen(attach(self, &arguments.ask, &arguments.timeout), given[ARRAY],
		      given + DTYPE);
}

/* ---- open_async() ---- */

static PyObject *finish_open(struct call *self, struct gpushm_buffer *opened)
{
	struct buffer *b = pybuffer_new(self->connection, opened, self->name, NULL);
	PyObject *array, *o[OVERRIDES];

	PyArg_ParseTuple(self->how, "OOOOO", &array, &o[0], &o[1], &o[2], &o[3]);
	return chosen(buffer_hinted(b, self->flags), array, o);
}

PyObject *Connection_send_open(PyObject *self, PyObject *const *args, Py_ssize_t n,
			       PyObject *keywords)
{
	PyObject *given[OPEN_ARGS] = { 0 };
	struct open_args arguments;
	const struct open_ask *a = &arguments.ask;
	struct call *call;
	uint64_t ms;
	int r;

	if (open_given(args, n, keywords, given, &arguments) < 0)
		return NULL;
	call = call_new(self, given[NAME]);
	if (!call)
		return NULL;
	call->finish = finish_open;
	call->flags = a->options->flags;
	call->how = PyTuple_Pack(5, given[ARRAY], given[DTYPE], given[SHAPE], given[STRIDES],
				 given[OFFSET]);
	if (!call->how)
		return call_sent(call, -ENOMEM);
	/* The daemon would wait until it is clean. */
	ms = call->flags & GPUSHM_REFUSE_DIRTY ? 0 : call_wait_ms(&arguments.timeout);
	WITHOUT_GIL(r = gpushm_send_open(call->c, a->name, a->access, ms, a->options, &call->call));
	return call_sent(call, r);
}

PyObject *Connection_open_table(PyObject *self, PyObject *name)
{
	struct open_args arguments;

	if (open_args_from((PyObject *[]){ name, NULL, NULL }, NULL, NULL, &arguments) < 0)
		return NULL;
	arguments.options.opening.flags |= GPUSHM_TABLE;
	return (PyObject *)attach(self, &arguments.ask, &arguments.timeout);
}

PyObject *Connection_open_many(PyObject *self, PyObject *const *args, Py_ssize_t n,
			       PyObject *keywords)
{
	PyObject *given[5] = { 0 };
	struct open_args arguments;

	if (args_take(&ARGS_Connection_open_many, args, n, keywords, given) < 0 ||
	    open_args_from(given, given[3], given[4], &arguments) < 0)
		return NULL;
	return (PyObject *)attach(self, &arguments.ask, &arguments.timeout);
}
