/* SPDX-License-Identifier: MIT
 *
 * Sections in which no close waits for a GPU.
 */
#include "client/python/core/defer.h"

#include "client/python/core/args.h"
#include "client/python/core/error.h"

static PyObject *done(int r)
{
	return r < 0 ? error_raise(r) : Py_NewRef(Py_None);
}

static PyObject *enter(PyObject *module, PyObject *unused)
{
	return done(gpushm_defer_cleanup());
}

static PyObject *leave(PyObject *module, PyObject *unused)
{
	return done(gpushm_resume_cleanup());
}

static PyObject *flush(PyObject *module, PyObject *unused)
{
	int r;

	Py_BEGIN_ALLOW_THREADS
	r = gpushm_flush_cleanup();
	Py_END_ALLOW_THREADS
	return done(r);
}

static PyObject *set_limits(PyObject *module, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "max_count", "max_ratio", NULL };
	uint32_t count;
	double ratio;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&d:set_cleanup_limits", (char **)names,
					 args_u32, &count, &ratio))
		return NULL;
	return done(gpushm_set_cleanup_limits(count, ratio));
}

static PyObject *pending(PyObject *module, PyObject *unused)
{
	uint64_t bytes;
	size_t n = gpushm_pending_cleanup(&bytes);

	return Py_BuildValue("nK", (Py_ssize_t)n, (unsigned long long)bytes);
}

PyMethodDef defer_functions[] = {
	{ "_defer_cleanup", enter, METH_NOARGS, NULL },
	{ "_resume_cleanup", leave, METH_NOARGS, NULL },
	{ "flush_cleanup", flush, METH_NOARGS,
	  "flush_cleanup($module, /)\n--\n\n"
	  "Does the closes that wait; outside of defer_cleanup() only (StateError). Waits for\n"
	  "the GPU." },
	{ "set_cleanup_limits", (PyCFunction)(void (*)(void))set_limits,
	  METH_VARARGS | METH_KEYWORDS,
	  "set_cleanup_limits($module, /, max_count, max_ratio)\n--\n\n"
	  "How many closes may wait outside of defer_cleanup(), on all GPUs together, and how\n"
	  "large a part of a GPU's memory, 0 to 1. Unless set:\n"
	  "$GPUSHM_MAX_PENDING_UNMAPS_COUNT, else 0, and $GPUSHM_MAX_PENDING_UNMAPS_RATIO,\n"
	  "else 0.2." },
	{ "pending_cleanup", pending, METH_NOARGS,
	  "pending_cleanup($module, /)\n--\n\n(buffers, bytes) whose closes wait." },
	{ NULL, NULL, 0, NULL }
};
