/* SPDX-License-Identifier: MIT
 *
 * Verbs that take a name and return nothing.
 */
#include "client/python/core/names.h"

#include "client/python/core/connection.h"
#include "client/python/core/error.h"

struct name_ask {
	struct ask ask;
	int (*verb)(struct gpushm *c, const char *name);
	const char *name;
};

static int run_name(struct gpushm *c, struct ask *ask)
{
	struct name_ask *a = container_of(ask, struct name_ask, ask);

	return a->verb(c, a->name);
}

static PyObject *tell(PyObject *self, int (*verb)(struct gpushm *c, const char *name),
		      const char *name)
{
	struct name_ask a = { .ask.run = run_name, .verb = verb, .name = name };
	struct connection *c = connection_of(self);
	int r;

	if (!c)
		return NULL;
	r = connection_ask(c, &a.ask);
	Py_DECREF((PyObject *)c);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *unlink_name(PyObject *self, PyObject *args)
{
	const char *name;

	return PyArg_ParseTuple(args, "s:unlink", &name) ? tell(self, gpushm_unlink, name) : NULL;
}

static PyObject *clean_name(PyObject *self, PyObject *args)
{
	const char *name;

	return PyArg_ParseTuple(args, "s:clean", &name) ? tell(self, gpushm_clean, name) : NULL;
}

static PyObject *flush(PyObject *self, PyObject *args)
{
	const char *pool = NULL;

	return PyArg_ParseTuple(args, "|z:flush", &pool) ? tell(self, gpushm_flush, pool) : NULL;
}

static int wait_once(struct gpushm *c, const char *name)
{
	return gpushm_wait(c, name, 0);
}

static PyObject *wait_name(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "name", "timeout", NULL };
	struct name_ask a = { .ask.run = run_name, .verb = wait_once };
	struct deadline d = { .forever = true };
	struct connection *c;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O&:wait", (char **)names, &a.name,
					 deadline_from, &d))
		return NULL;
	c = connection_of(self);
	if (!c)
		return NULL;
	r = connection_try(c, &a.ask);
	if ((r == -ENOENT || r == -EAGAIN) && deadline_turn(&d) > 0)
		r = connection_try_wait(c, a.name, &d);
	if (r < 0)
		error_raise(r);
	Py_DECREF((PyObject *)c);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

PyMethodDef names_verbs[] = {
	{ "unlink", unlink_name, METH_VARARGS,
	  "unlink($self, name, /)\n--\n\n"
	  "Frees the name at once; the memory goes when nobody has it open any more. For the\n"
	  "owner and admins. Asks the daemon. Errors: NotFound, AccessDenied, DaemonGone." },
	{ "clean", clean_name, METH_VARARGS,
	  "clean($self, name, /)\n--\n\n"
	  "Says that a dirty buffer's contents are good again, and wakes who waits for that.\n"
	  "For the owner and admins. Asks the daemon. Errors: NotFound, AccessDenied,\n"
	  "DaemonGone." },
	{ "flush", flush, METH_VARARGS,
	  "flush($self, pool=None, /)\n--\n\n"
	  "Gives back to the driver what was freed in a pool and waits there for reuse; None:\n"
	  "in every pool that this user may create in. Waits for the driver. Errors:\n"
	  "NotFound, AccessDenied." },
	{ "wait", (PyCFunction)(void (*)(void))wait_name, METH_VARARGS | METH_KEYWORDS,
	  "wait($self, name, timeout=None)\n--\n\n"
	  "Waits until the name is published, without attaching: at most so many seconds,\n"
	  "None for ever. Other threads are not kept waiting, and Ctrl-C is heard. Errors:\n"
	  "Timeout, NotFound or NotPublished (timeout 0), DaemonGone." },
	{ NULL, NULL, 0, NULL }
};
