/* SPDX-License-Identifier: MIT
 *
 * create() and create_many(). They read all layouts first, so that an error in one of them is
 * raised before the daemon is asked. Then one request makes the buffer with all its arrays.
 *
 * An anonymous buffer has a random name, which is private unless its mode lets others open it.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/layouts.h"
#include "client/python/core/module.h"
#include "client/python/core/unpublished.h"

#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CREATES_MAX 16 /* daemons that may die of one create */

/* ---- the request ---- */

struct create_ask {
	struct ask ask;
	const char *name;
	struct gpushm_array_spec *specs;
	size_t n;
	uint64_t bytes; /* 0: as many as the arrays need */
	struct options *options;
	struct gpushm_buffer *ret;
};

/* Describes the arrays of a new buffer, or discards it. *ret_again: it was lost with its daemon,
 * and nothing was written to it yet. */
static int describe_new(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n,
			bool *ret_again)
{
	int r = n > 0 ? gpushm_describe(b, specs, n) : 0;

	*ret_again = r == -ECONNRESET && gpushm_buffer_lost(b) == 1;
	/* gpushm_error() tells of the arrays, and not of this. */
	if (r < 0)
		gpushm_discard(b);
	return r;
}

/* A buffer of a size of the caller's, with the arrays at its start. */
static int create_sized(struct gpushm *c, struct create_ask *a)
{
	struct gpushm_buffer *b;
	bool again;
	uint64_t needed;
	int tries = 0, r = a->n > 0 ? gpushm_layout(a->specs, a->n, &needed) : 0;

	if (r < 0)
		return r;
	do {
		again = false;
		r = gpushm_create(c, a->name, a->bytes, &a->options->o, &b);
		if (r == 0)
			r = describe_new(b, a->specs, a->n, &again);
	} while (again && ++tries < CREATES_MAX);
	if (r == 0)
		a->ret = b;
	return r;
}

static int run_create(struct gpushm *c, struct ask *ask)
{
	struct create_ask *a = container_of(ask, struct create_ask, ask);

	a->options->o.wait_ms = ask->timeout_ms;
	return a->bytes ? create_sized(c, a)
			: gpushm_create_arrays(c, a->name, a->specs, a->n, &a->options->o, &a->ret);
}

/* Notes where the program created it. */
static struct buffer *place(struct buffer *b)
{
	if (b)
		b->place = unpublished_place();
	if (!b || b->place)
		return b;
	b->scratch = true;
	Py_DECREF((PyObject *)b);
	return NULL;
}

static PyObject *anonymous_name(mode_t mode)
{
	const char *private = mode & (S_IRWXG | S_IRWXO) ? "" : "~/";
	unsigned long long number;
	char name[64];

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return PyErr_SetFromErrno(PyExc_OSError);
	snprintf(name, sizeof(name), "%sanonymous-%d-%016llx", private, (int)getpid(), number);
	return PyUnicode_FromString(name);
}

static struct buffer *make_named(PyObject *self, PyObject *name, struct create_ask *a)
{
	struct connection *c;
	struct buffer *b;
	int r;

	if (args_text(name, "name", &a->name) < 0)
		return NULL;
	c = connection_of(self);
	r = c ? connection_try(c, &a->ask) : -ECONNRESET;
	if (r == -ENOSPC && deadline_turn(&a->options->wait) > 0)
		r = connection_try_apart(c, &a->ask, &a->options->wait);
	if (r < 0)
		return error_raise(r);
	b = place(pybuffer_new(c, a->ret, name, NULL));
	return a->options->o.pool ? b : buffer_hinted(b, a->options->o.flags);
}

/* name: a str, or None for an anonymous buffer. */
static struct buffer *make(PyObject *self, PyObject *name, struct gpushm_array_spec *specs,
			   size_t n, uint64_t bytes, struct options *options)
{
	struct create_ask a = {
		.ask.run = run_create, .specs = specs, .n = n, .bytes = bytes, .options = options
	};
	_cleanup_(drop_object) PyObject *made = NULL;
	struct buffer *b;

	if (name != Py_None)
		return make_named(self, name, &a);
	made = anonymous_name(options->o.mode);
	options->o.flags |= GPUSHM_TRANSIENT;
	b = made ? make_named(self, made, &a) : NULL;
	if (b)
		b->anonymous = b->scratch = true;
	return b;
}

/* ---- one array ---- */

/* The only array of a new buffer, which owns the buffer. Takes b over. */
static PyObject *owner_of(struct buffer *b)
{
	struct gpushm_array *a = NULL;
	PyObject *array = array_new(b, gpushm_array_at(b->buffer, 0, &a), &a);

	b->owner = (struct array *)array;
	Py_DECREF((PyObject *)b);
	return array;
}

static PyObject *create(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name",  "shape",	 "dtype",     "pool",  "mode",
					     "order", "strides", "transient", "attrs", "wait",
					     "gid",   "device",	 NULL };
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(array_layout_done) struct layout layout = { 0 };
	_cleanup_(drop_object) PyObject *bytes = PyUnicode_FromString("uint8");
	struct options_args given = { .mode = 0600 };
	PyObject *name, *shape, *dtype = bytes, *strides = Py_None;
	const char *order_word = "C";
	struct buffer *b;
	char order;

	if (!bytes ||
	    !PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O$zO&sOpOO&OO:create", (char **)names,
					 &name, &shape, &dtype, &given.pool, mode_arg, &given.mode,
					 &order_word, &strides, &given.transient, &given.attrs,
					 deadline_arg, &options.wait, &given.gid, &given.device))
		return NULL;
	order = order_from(order_word);
	if (!order || options_from(&given, &options) < 0 ||
	    layout_from(dtype, shape, strides, order, &layout) < 0)
		return NULL;
	layout.spec.name = "";
	b = make(self, name, &layout.spec, 1, 0, &options);
	return b ? owner_of(b) : NULL;
}

/* ---- open or create ---- */

struct either_ask {
	struct ask ask;
	const char *name;
	enum gpushm_access access;
	struct gpushm_array_spec *spec;
	struct options *options;
	struct gpushm_buffer *ret;
	bool created;
};

static int run_either(struct gpushm *c, struct ask *ask)
{
	struct either_ask *a = container_of(ask, struct either_ask, ask);
	struct gpushm_buffer *b;
	bool again;
	uint64_t bytes;
	int tries = 0, r = gpushm_layout(a->spec, 1, &bytes);

	a->options->o.wait_ms = ask->timeout_ms;
	if (r < 0)
		return r;
	do {
		again = false;
		r = gpushm_open_or_create(c, a->name, a->access, ask->timeout_ms,
					  &a->options->opening, bytes, &a->options->o, &b);
		a->created = r == GPUSHM_CREATED;
		if (a->created)
			r = describe_new(b, a->spec, 1, &again);
	} while (again && ++tries < CREATES_MAX);
	if (r == 0)
		a->ret = b;
	return r;
}

/* The buffer of a wait stays on the link of the wait, so that the connection's own link is free for
 * other threads. */
static PyObject *have_either(PyObject *self, PyObject *name, struct either_ask *a,
			     const struct deadline *d)
{
	struct connection *c = connection_of(self);
	int r = c ? connection_try(c, &a->ask) : -ECONNRESET;
	struct buffer *b;
	PyObject *result;

	if ((r == -EAGAIN || r == -EUCLEAN || r == -ENOSPC) && deadline_turn(d) > 0)
		r = connection_try_apart(c, &a->ask, d);
	if (r < 0)
		return error_raise(r);
	b = pybuffer_new(c, a->ret, name, NULL);
	if (a->created)
		b = place(b);
	if (!a->created || !a->options->o.pool)
		b = buffer_hinted(b, a->options->o.flags);
	if (!b || a->created)
		return b ? owner_of(b) : NULL;
	result = open_result(b);
	Py_DECREF((PyObject *)b);
	return result;
}

static PyObject *open_or_create(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name",	"shape", "dtype",  "access",
					     "timeout", "pool",	 "mode",   "transient",
					     "attrs",	"gid",	 "device", "refuse_dirty",
					     NULL };
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(array_layout_done) struct layout layout = { 0 };
	_cleanup_(drop_object) PyObject *bytes = PyUnicode_FromString("uint8");
	struct options_args given = { .mode = 0600 };
	struct deadline timeout = { .forever = true };
	struct either_ask a = { .ask.run = run_either, .spec = &layout.spec, .options = &options };
	PyObject *name, *shape, *dtype = bytes;
	const char *access = "r";
	uint32_t flags;

	if (!bytes ||
	    !PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O$sO&zO&pOOOp:open_or_create",
					 (char **)names, &name, &shape, &dtype, &access,
					 deadline_arg, &timeout, &given.pool, mode_arg, &given.mode,
					 &given.transient, &given.attrs, &given.gid, &given.device,
					 &given.refuse_dirty) ||
	    args_text(name, "name", &a.name) < 0 ||
	    open_access_from(access, &a.access, &flags) < 0 || options_from(&given, &options) < 0 ||
	    layout_from(dtype, shape, Py_None, 'C', &layout) < 0)
		return NULL;
	options.opening.flags |= flags;
	layout.spec.name = "";
	return have_either(self, name, &a, &timeout);
}

/* ---- many arrays ---- */

/* Copies the values into the new arrays. Takes b over. */
static PyObject *fill(struct buffer *b, PyObject *items, PyObject *stream)
{
	PyObject *type, *value, *traceback, *done;

	if (!b)
		return NULL;
	done = PyObject_CallMethod((PyObject *)b, "_fill", "OO", items, stream);
	if (done) {
		Py_DECREF(done);
		return (PyObject *)b;
	}
	/* The traceback may keep the buffer. */
	PyErr_Fetch(&type, &value, &traceback);
	if (pybuffer_discard(b) < 0)
		PyErr_Clear();
	b->scratch = true;
	PyErr_Restore(type, value, traceback);
	Py_DECREF((PyObject *)b);
	return NULL;
}

static PyObject *create_many(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name",	  "arrays", "pool",   "mode",
					     "transient", "attrs",  "wait",   "gid",
					     "device",	  "stream", "nbytes", NULL };
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(layouts_done) struct layouts layouts = { 0 };
	_cleanup_(drop_object) PyObject *items = NULL;
	struct options_args given = { .mode = 0600 };
	PyObject *name, *arrays, *stream = Py_None;
	uint64_t bytes = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$zO&pOO&OOOO&:create_many",
					 (char **)names, &name, &arrays, &given.pool, mode_arg,
					 &given.mode, &given.transient, &given.attrs, deadline_arg,
					 &options.wait, &given.gid, &given.device, &stream, u64_arg,
					 &bytes) ||
	    options_from(&given, &options) < 0)
		return NULL;
	items = PyMapping_Items(arrays);
	if (!items || layouts_from(items, layout_from_value, &layouts) < 0)
		return NULL;
	return fill(make(self, name, layouts.specs, layouts.n, bytes, &options), items, stream);
}

PyMethodDef create_functions[] = {
	{ "create", KEYWORDS(create), METH_VARARGS | METH_KEYWORDS,
	  "create($self, name, shape, dtype='uint8', *, pool=None, mode=0o600, order='C',\n"
	  "       strides=None, transient=False, attrs=None, wait=0, gid=None,\n"
	  "       device=None)\n--\n\n"
	  "Makes a buffer of one array, mapped for writing. Others can open it once it is\n"
	  "published.\n\n"
	  "name: None makes an anonymous buffer. It ends with its last user, and others open it\n"
	  "by its handle(), which also publishes it as shared.\n\n"
	  "shape: an int or a tuple of at most 32; dtype: a name, or whatever numpy.dtype()\n"
	  "accepts; strides: in bytes, instead of order ('C' or 'F'). pool: None is the\n"
	  "daemon's default, a GPU's pool if there is one. mode: who may open it, as of a\n"
	  "file. transient: the daemon unlinks it when no process has it open. attrs: a dict\n"
	  "of str to bytes or str, 4,096 bytes in all. wait: seconds to wait for memory while\n"
	  "the pool is full, None for ever. device: map it for that GPU, or 'current' for this\n"
	  "thread's, by peer access.\n\n"
	  "The contents are zero, or those of an earlier buffer of this user. If this process\n"
	  "ends before publish(), the buffer is freed. Asks the daemon, which takes some\n"
	  "10 us, without the GIL. Errors: Exists, NotFound (pool), AccessDenied, LimitReached, "
	  "PoolFull,\n"
	  "TooLarge, DeviceFailed, DriverError, BadArgument, LayoutError, DaemonGone." },
	{ "open_or_create", KEYWORDS(open_or_create), METH_VARARGS | METH_KEYWORDS,
	  "open_or_create($self, name, shape, dtype='uint8', *, access='r', timeout=None,\n"
	  "               pool=None, mode=0o600, transient=False, attrs=None, gid=None,\n"
	  "               device=None, refuse_dirty=False)\n--\n\n"
	  "Opens the buffer of that name, or creates it if nobody has: of many processes that\n"
	  "call this, one creates it, and the others wait until it is published. The one that\n"
	  "created it has an Array whose state is 'filling': it fills and publishes it. If it\n"
	  "ends or closes the Array before that, one of the others creates.\n\n"
	  "shape, dtype: of the new Array; the opened one has its own. access: for opening, as\n"
	  "of open(). timeout: seconds to wait until another process has published it, or until\n"
	  "the pool has memory; None for ever. Other threads run meanwhile, and Ctrl-C works.\n"
	  "Otherwise as open() and create(). Errors: those of both, but for NotFound and Exists\n"
	  "of the name." },
	{ "create_many", KEYWORDS(create_many), METH_VARARGS | METH_KEYWORDS,
	  "create_many($self, name, arrays, *, pool=None, mode=0o600, transient=False,\n"
	  "            attrs=None, wait=0, gid=None, device=None, stream=None, nbytes=0)\n--\n\n"
	  "Makes a buffer of many arrays, mapped for writing. arrays: a dict of names to\n"
	  "arrays and tensors of any library, as a state_dict(), lists or numbers: they are\n"
	  "copied, and all copies are waited for once. (shape, dtype), or an object that has\n"
	  "both and no values, describes an array that is not filled. Each array is in C order\n"
	  "and starts at a multiple of 256 bytes. The Buffer maps the names to Arrays, also in\n"
	  "processes that open it. stream: as for Array.copy_from_host(). nbytes: the size of\n"
	  "the buffer, 0 for as many bytes as the arrays need; Buffer.describe() adds arrays.\n"
	  "Otherwise as create()." },
	{ NULL, NULL, 0, NULL }
};
