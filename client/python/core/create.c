/* SPDX-License-Identifier: MIT
 *
 * create() and create_many(). The arrays' specs are gathered first, so that what is wrong with them
 * is told before the daemon is asked; then one call makes the buffer with all of them in it.
 */
#include "client/python/core/create.h"

#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/dtype.h"
#include "client/python/core/error.h"
#include "client/python/core/options.h"
#include "client/python/core/shape.h"

/* An array to be, and what its spec points to. */
struct part {
	struct dtype dtype;
	struct shape shape, strides;
};

struct parts {
	size_t n;
	struct part *parts;		 /* owned */
	struct gpushm_array_spec *specs; /* owned; as many */
};

static void parts_done(struct parts *p)
{
	for (size_t i = 0; i < p->n; i++)
		dtype_done(&p->parts[i].dtype);
	PyMem_Free(p->parts);
	PyMem_Free(p->specs);
	*p = (struct parts){ 0 };
}

static int parts_alloc(struct parts *p, Py_ssize_t n)
{
	p->parts = PyMem_Calloc((size_t)n + 1, sizeof(*p->parts));
	p->specs = PyMem_Calloc((size_t)n + 1, sizeof(*p->specs));
	if (p->parts && p->specs)
		return 0;
	PyErr_NoMemory();
	return -1;
}

/* strides: None for those of the order. */
static int parts_add(struct parts *p, const char *name, PyObject *shape, PyObject *dtype,
		     PyObject *strides, char order)
{
	struct part *part = &p->parts[p->n];
	bool given = strides != Py_None;

	if (shape_from(shape, "shape", &part->shape) < 0 || dtype_from(dtype, &part->dtype) < 0)
		return -1;
	/* From now on there is a dtype to be dropped. */
	p->specs[p->n++] = (struct gpushm_array_spec){ .name = name,
						       .dtype = part->dtype.type,
						       .descr = part->dtype.words,
						       .ndim = part->shape.ndim,
						       .shape = part->shape.dims };
	if (given && shape_from(strides, "strides", &part->strides) < 0)
		return -1;
	if (given && part->strides.ndim != part->shape.ndim) {
		PyErr_Format(PyExc_ValueError, "%d strides were given for %d dimensions",
			     part->strides.ndim, part->shape.ndim);
		return -1;
	}
	if (!given && order == 'F')
		shape_strides(&part->shape, (int64_t)(gpushm_dtype_bits(part->dtype.type) / 8),
			      order, &part->strides);
	if (given || order == 'F')
		p->specs[p->n - 1].strides = part->strides.dims;
	return 0;
}

/* (shape, dtype), or anything that has both. */
static int parts_add_object(struct parts *p, const char *name, PyObject *o)
{
	_cleanup_(drop_object) PyObject *shape = NULL, *dtype = NULL;

	if (PyTuple_Check(o) && PyTuple_Size(o) == 2) {
		shape = Py_NewRef(PyTuple_GetItem(o, 0));
		dtype = Py_NewRef(PyTuple_GetItem(o, 1));
	} else if (PyObject_HasAttrString(o, "shape") && PyObject_HasAttrString(o, "dtype")) {
		shape = PyObject_GetAttrString(o, "shape");
		dtype = PyObject_GetAttrString(o, "dtype");
	} else {
		PyErr_Format(PyExc_TypeError, "array \"%s\": (shape, dtype) is wanted, not %R",
			     name, o);
	}
	return shape && dtype ? parts_add(p, name, shape, dtype, Py_None, 'C') : -1;
}

/* The names are borrowed from `items`, a list of (name, (shape, dtype)). */
static int parts_from(PyObject *items, struct parts *p)
{
	Py_ssize_t n = PyList_Size(items);

	if (parts_alloc(p, n) < 0)
		return -1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *value;
		const char *name;

		if (!PyArg_ParseTuple(PyList_GetItem(items, i),
				      "sO;arrays are a dict of str to (shape, dtype)", &name,
				      &value) ||
		    parts_add_object(p, name, value) < 0)
			return -1;
	}
	return 0;
}

/* ---- asking ---- */

struct create_ask {
	struct ask ask;
	const char *name;
	struct parts *parts;
	struct options *options;
	struct gpushm_buffer *ret;
};

static int run_create(struct gpushm *c, struct ask *ask)
{
	struct create_ask *a = container_of(ask, struct create_ask, ask);

	a->options->o.wait_ms = ask->timeout_ms;
	return gpushm_create_arrays(c, a->name, a->parts->specs, a->parts->n, &a->options->o,
				    &a->ret);
}

static struct buffer *make(PyObject *self, PyObject *name, struct parts *parts,
			   struct options *options)
{
	struct create_ask a = { .ask.run = run_create, .parts = parts, .options = options };
	struct connection *c;
	struct buffer *b = NULL;
	int r;

	if (args_text(name, "name", &a.name) < 0)
		return NULL;
	c = connection_of(self);
	if (!c)
		return NULL;
	r = connection_try(c, &a.ask);
	if (r == -ENOSPC && deadline_turn(&options->wait) > 0)
		r = connection_try_apart(c, &a.ask, &options->wait);
	if (r < 0)
		error_raise(r);
	else
		b = buffer_new(c, a.ret, name);
	Py_DECREF((PyObject *)c);
	return b;
}

/* ---- the verbs ---- */

/* The buffer's own array, which owns it. Takes b over. */
static PyObject *owner_of(struct buffer *b)
{
	struct gpushm_array *a = NULL;
	struct array *self = NULL;
	int r = gpushm_array_at(b->buffer, 0, &a);

	if (r < 0)
		error_raise(r);
	else
		self = array_new(b, a);
	if (self)
		array_own_buffer(self);
	Py_DECREF((PyObject *)b);
	return (PyObject *)self;
}

static PyObject *create(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name",  "shape",	 "dtype",     "pool",  "mode",
					     "order", "strides", "transient", "attrs", "wait",
					     "gid",   "device",	 NULL };
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(parts_done) struct parts parts = { 0 };
	struct options_words w = { .mode = 0600 };
	PyObject *name, *shape, *dtype = NULL, *strides = Py_None;
	const char *order_word = "C";
	struct buffer *b;
	char order;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO|O$zO&sOpOO&OO:create", (char **)names,
					 &name, &shape, &dtype, &w.pool, options_mode, &w.mode,
					 &order_word, &strides, &w.transient, &w.attrs,
					 deadline_from, &options.wait, &w.gid, &w.device))
		return NULL;
	order = shape_order(order_word);
	if (!order || options_from(&w, &options) < 0 || parts_alloc(&parts, 1) < 0)
		return NULL;
	dtype = dtype ? Py_NewRef(dtype) : PyUnicode_FromString("uint8");
	if (!dtype)
		return NULL;
	b = parts_add(&parts, "", shape, dtype, strides, order) < 0
		    ? NULL
		    : make(self, name, &parts, &options);
	Py_DECREF(dtype);
	return b ? owner_of(b) : NULL;
}

static PyObject *create_many(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name",  "arrays", "pool", "mode",	  "transient",
					     "attrs", "wait",	"gid",	"device", NULL };
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(parts_done) struct parts parts = { 0 };
	_cleanup_(drop_object) PyObject *items = NULL;
	struct options_words w = { .mode = 0600 };
	PyObject *name, *arrays;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO|$zO&pOO&OO:create_many", (char **)names,
					 &name, &arrays, &w.pool, options_mode, &w.mode,
					 &w.transient, &w.attrs, deadline_from, &options.wait,
					 &w.gid, &w.device) ||
	    options_from(&w, &options) < 0)
		return NULL;
	items = PyMapping_Items(arrays);
	if (!items || parts_from(items, &parts) < 0)
		return NULL;
	return (PyObject *)make(self, name, &parts, &options);
}

PyMethodDef create_verbs[] = {
	{ "create", (PyCFunction)(void (*)(void))create, METH_VARARGS | METH_KEYWORDS,
	  "create($self, name, shape, dtype='uint8', *, pool=None, mode=0o600, order='C',\n"
	  "       strides=None, transient=False, attrs=None, wait=0, gid=None,\n"
	  "       device=None)\n--\n\n"
	  "Makes a buffer of one array, mapped for writing. Others can open it once it is\n"
	  "published.\n\n"
	  "shape: an int or a tuple of at most 32; dtype: a name, or whatever numpy.dtype()\n"
	  "takes; strides: in bytes, instead of order ('C' or 'F'). pool: None is the\n"
	  "daemon's default, a GPU's if there is one. mode: who may open it, as for a file.\n"
	  "transient: unlinked when nobody has it open. attrs: a dict of str to bytes or str,\n"
	  "4,096 bytes in all. wait: seconds to wait for room where the pool is full, None\n"
	  "for ever. device: map it for that GPU, which has peer access.\n\n"
	  "The contents are zero, or what this user had in an earlier buffer. If this process\n"
	  "ends before it is published, it vanishes. Asks the daemon, some 10 us, without the\n"
	  "GIL. Errors: Exists, NotFound (pool), AccessDenied, LimitReached, PoolFull,\n"
	  "TooLarge, DeviceFailed, DriverError, BadArgument, LayoutError, DaemonGone." },
	{ "create_many", (PyCFunction)(void (*)(void))create_many, METH_VARARGS | METH_KEYWORDS,
	  "create_many($self, name, arrays, *, pool=None, mode=0o600, transient=False,\n"
	  "            attrs=None, wait=0, gid=None, device=None)\n--\n\n"
	  "Makes a buffer of many arrays, mapped for writing: a dict of names to (shape,\n"
	  "dtype), or to anything that has both. Each array starts on a multiple of 256\n"
	  "bytes. The Buffer is a mapping of the names to Arrays, for whoever opens it too.\n"
	  "Otherwise as create()." },
	{ NULL, NULL, 0, NULL }
};
