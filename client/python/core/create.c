/* SPDX-License-Identifier: MIT
 *
 * create(), create_many() and open_or_create(): one request makes the buffer with all its arrays.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/module.h"

#define CREATES_MAX 16 /* daemons that may die of one create */

/* ---- the request ---- */

struct create_ask {
	struct ask ask;
	const char *name;
	struct gpushm_array_spec *specs;
	size_t n;
	uint64_t bytes; /* 0: as many as the arrays need */
	bool or_open;	/* a buffer that has the name, for that access */
	enum gpushm_access access;
	struct options *options;
	struct gpushm_buffer *ret;
	bool created;
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

/* One that is new gets the arrays at its start. */
static int have_buffer(struct gpushm *c, struct create_ask *a)
{
	struct options *o = a->options;
	struct gpushm_buffer *b;
	bool again;
	uint64_t needed;
	int tries = 0, r = a->n > 0 ? gpushm_layout(a->specs, a->n, &needed) : 0;

	if (r < 0)
		return r;
	do {
		again = false;
		r = a->or_open ? gpushm_open_or_create(c, a->name, a->access, a->ask.timeout_ms,
						       &o->opening, needed, &o->o, &b)
			       : gpushm_create(c, a->name, a->bytes, &o->o, &b);
		a->created = r == (a->or_open ? GPUSHM_CREATED : 0);
		if (a->created)
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
	a->created = true;
	return a->bytes || a->or_open
		       ? have_buffer(c, a)
		       : gpushm_create_arrays(c, a->name, a->specs, a->n, &a->options->o, &a->ret);
}

/* Notes where the program created it. */
static struct buffer *place(struct buffer *b)
{
	if (b)
		b->place = object_call(types.unpublished_module, "place", "()");
	if (!b || b->place)
		return b;
	b->scratch = true;
	Py_DECREF((PyObject *)b);
	return NULL;
}

/* A new buffer waits for memory, and a name for who fills the buffer or has left it dirty. The
 * buffer of a wait stays on the link of the wait, so that the connection's own link is free for
 * other threads. */
static struct buffer *make(PyObject *self, PyObject *name, struct create_ask *a,
			   const struct deadline *d)
{
	struct connection *c;
	struct buffer *b;
	int r;

	if (args_text(name, "name", &a->name) < 0)
		return NULL;
	c = connection_of(self);
	r = c ? connection_try(c, &a->ask) : -ECONNRESET;
	if ((r == -ENOSPC || (a->or_open && (r == -EAGAIN || r == -EUCLEAN))) &&
	    deadline_turn(d) > 0)
		r = connection_try_apart(c, &a->ask, d);
	if (r < 0)
		return error_raise(r);
	b = pybuffer_new(c, a->ret, name, NULL);
	if (a->created)
		b = place(b);
	return a->created && a->options->o.pool ? b : buffer_hinted(b, a->options->o.flags);
}

PyObject *Connection_create(PyObject *self, PyObject *args)
{
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(layouts_done) struct layouts l = { 0 };
	struct create_ask a = { .ask.run = run_create, .options = &options };
	int owns, anonymous;
	struct buffer *b;
	PyObject *name;

	if (!PyArg_ParseTuple(args, "OO&O&O&pp:create", &name, layouts_arg, &l, options_arg,
			      &options, u64_arg, &a.bytes, &owns, &anonymous))
		return NULL;
	a.specs = l.specs;
	a.n = l.n;
	options.o.flags |= anonymous ? GPUSHM_TRANSIENT : 0;
	b = make(self, name, &a, &options.wait);
	if (b && anonymous)
		b->anonymous = b->scratch = true;
	return owns ? open_result(b) : (PyObject *)b;
}

PyObject *Connection_open_or_create(PyObject *self, PyObject *args)
{
	_cleanup_(options_done) struct options options = { 0 };
	_cleanup_(layouts_done) struct layouts l = { 0 };
	struct create_ask a = { .ask.run = run_create, .or_open = true, .options = &options };
	struct deadline timeout;
	const char *access;
	PyObject *name;
	uint32_t flags;

	if (!PyArg_ParseTuple(args, "OO&O&sO&:open_or_create", &name, layouts_arg, &l, options_arg,
			      &options, &access, deadline_arg, &timeout) ||
	    open_access_from(access, &a.access, &flags) < 0)
		return NULL;
	options.opening.flags |= flags;
	a.specs = l.specs;
	a.n = l.n;
	return open_result(make(self, name, &a, &timeout));
}
