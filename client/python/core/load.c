/* SPDX-License-Identifier: MIT
 *
 * What gpushm._load needs of libgpushm-load: models in files, and of other machines. That library
 * is opened when it is called first, so that a process that only attaches to a model does not need
 * it: the one beside this extension, else the system's. libgpushm asks for it where an evicted
 * buffer must be loaded again.
 *
 * The work is done in the calling thread without the GIL. libgpushm-load calls on_progress() some
 * ten times a second, which takes the GIL, lets Python handle signals, and calls the program's
 * function. An exception that is raised there stops the work, and nothing is left behind.
 */
#include "client/python/core/args.h"
#include "client/python/core/buffer.h"
#include "client/python/core/module.h"

#include "client/gpushm_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define LIBRARY "libgpushm-load.so." GPUSHM_SOVERSION

/* ---- the library ---- */

/* Its functions, once load_library() has returned 0. */
static struct {
	void *handle; /* stays open; NULL: not opened yet */
	__typeof__(gpushm_load) *load;
	__typeof__(gpushm_load_key) *load_key;
	__typeof__(gpushm_save) *save;
	__typeof__(gpushm_verify) *verify, *digest;
	__typeof__(gpushm_pull) *pull;
	__typeof__(gpushm_pull_wait) *pull_wait;
} calls;

/* The path of the library beside this extension; LIBRARY if no file is there. */
static const char *library_path(char buf[PATH_MAX])
{
	Dl_info info;
	const char *end;

	if (!dladdr(&calls, &info) || !info.dli_fname)
		return LIBRARY;
	end = strrchr(info.dli_fname, '/');
	if (!end || snprintf(buf, PATH_MAX, "%.*s/%s", (int)(end - info.dli_fname), info.dli_fname,
			     LIBRARY) >= PATH_MAX)
		return LIBRARY;
	return access(buf, F_OK) == 0 ? buf : LIBRARY;
}

void load_offer(void)
{
	char path[PATH_MAX];

	dlopen(library_path(path), RTLD_NOW | RTLD_LOCAL);
}

static int library_failed(void)
{
	return error_refuse(ERROR_UNSUPPORTED, ELIBACC,
			    "load(), pull(), save() and verify() need " LIBRARY
			    ", which can't be opened: %s. Install gpushm's library for models "
			    "(libgpushm-load), or the Python package again",
			    dlerror());
}

/* 0; -1: raised. */
static int load_library(void)
{
	char path[PATH_MAX];
	void *handle;

	if (calls.handle)
		return 0;
	/* Opening it twice, from two threads, is harmless. */
	handle = dlopen(library_path(path), RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return library_failed();
#define FIND(call)                                                                  \
	if (!(calls.call = (__typeof__(calls.call))dlsym(handle, "gpushm_" #call))) \
		return library_failed();
	FIND(load)
	FIND(load_key)
	FIND(save)
	FIND(verify)
	FIND(digest)
	FIND(pull)
	FIND(pull_wait)
	calls.handle = handle;
	return 0;
}

/* ---- progress ---- */

static int call_progress(PyObject *progress, const struct gpushm_load_progress *p)
{
	/* libgpushm-load may call once more after the call that has stopped it. */
	if (PyErr_Occurred() || PyErr_CheckSignals() < 0)
		return -1;
	if (progress == Py_None)
		return 0;
	return object_done(PyObject_CallFunction(progress, "KK", (unsigned long long)p->done,
						 (unsigned long long)p->total));
}

/* user: a callable or None. */
static int on_progress(void *user, const struct gpushm_load_progress *p)
{
	PyGILState_STATE gil = PyGILState_Ensure();
	int r = call_progress(user, p);

	PyGILState_Release(gil);
	return r < 0;
}

/* For what a call has returned that was given on_progress(). 0 or more; -1: raised. */
static int result(int r)
{
	return PyErr_Occurred() ? -1 : error_result(r);
}

/* ---- arguments ---- */

/* For "O&": bytes without a NUL, or None; *ret is borrowed. */
static int bytes_arg(PyObject *o, void *ret)
{
	return o == Py_None || PyBytes_AsStringAndSize(o, ret, NULL) == 0;
}

/* For "O&": bools, in the order of these bits. */
static int flags_arg(PyObject *o, void *ret)
{
	static const uint32_t bits[] = { GPUSHM_LOAD_IF_MISSING, GPUSHM_LOAD_REPLACE,
					 GPUSHM_LOAD_VERIFY,	 GPUSHM_LOAD_CACHED,
					 GPUSHM_LOAD_DIRECT,	 GPUSHM_LOAD_DROP_CACHE,
					 GPUSHM_LOAD_NIXL,	 GPUSHM_LOAD_KEEP };

	for (Py_ssize_t i = 0; i < PyTuple_Size(o); i++) {
		int r = PyObject_IsTrue(PyTuple_GetItem(o, i));

		if (r < 0)
			return 0;
		*(uint32_t *)ret |= r ? bits[i] : 0;
	}
	return 1;
}

/* For "O&": files for servers, and the patience. */
static int remote_arg(PyObject *o, void *ret)
{
	struct gpushm_remote_options *r = ret;

	r->struct_size = sizeof(*r);
	return PyArg_ParseTuple(o, "O&O&O&O&O&:Transport", bytes_arg, &r->token_file, bytes_arg,
				&r->ca, bytes_arg, &r->cert, bytes_arg, &r->key, u32_arg,
				&r->patience_s);
}

struct texts {
	const char **text; /* of the list's bytes, borrowed */
	size_t n;
};

static void texts_done(struct texts *t)
{
	PyMem_Free(t->text);
}

/* For "O&": a list of bytes. The caller ends it with texts_done(), also after a failure. */
static int texts_arg(PyObject *list, void *ret)
{
	struct texts *t = ret;
	size_t n = (size_t)PyList_Size(list);

	if (PyErr_Occurred())
		return 0;
	t->text = PyMem_Calloc(n + 1, sizeof(*t->text));
	if (!t->text) {
		PyErr_NoMemory();
		return 0;
	}
	for (; t->n < n; t->n++)
		if (PyBytes_AsStringAndSize(PyList_GetItem(list, (Py_ssize_t)t->n),
					    (char **)&t->text[t->n], NULL) < 0)
			return 0;
	return 1;
}

/* ---- load and pull ---- */

struct load_ask {
	struct ask ask;
	int pulls;
	struct texts sources, only;
	const char *name; /* NULL: the library's */
	struct options options;
	struct deadline timeout; /* for another process that loads */
	struct gpushm_load_options load;
	struct gpushm_remote_options remote;
	struct gpushm_buffer *ret;
};

static void load_ask_done(struct load_ask *a)
{
	options_done(&a->options);
	texts_done(&a->sources);
	texts_done(&a->only);
}

/* All waits are the library's, which asks on_progress() meanwhile: a pipe can't be read twice. */
static int run_load(struct gpushm *c, struct ask *ask)
{
	struct load_ask *a = container_of(ask, struct load_ask, ask);
	struct gpushm_create_options *o = &a->options.o;
	uint64_t left = deadline_left(&a->timeout);

	o->wait_ms = deadline_left(&a->options.wait);
	/* 0 is no limit. */
	a->load.wait_ms = left + (left == 0);
	return a->pulls ? calls.pull(c, a->sources.text[0], a->name, o, &a->load, &a->ret)
			: calls.load(c, a->sources.text, a->sources.n, a->name, o, &a->load,
				     &a->ret);
}

/* Makes the Buffer on a link of its own. */
static PyObject *load_on(struct connection *c, struct load_ask *a, PyObject *name)
{
	_cleanup_(drop_object) PyObject *own = NULL;
	struct deadline once = { 0 };
	struct buffer *b;
	int r;

	if (!c || load_library() < 0)
		return NULL;
	r = connection_try_apart(c, &a->ask, &once);
	if (r < 0)
		return error_raise(r);
	if (!PyErr_Occurred())
		own = name == Py_None ? PyUnicode_FromString(gpushm_buffer_name(a->ret))
				      : Py_NewRef(name);
	if (!own) {
		gpushm_close(a->ret);
		return NULL;
	}
	b = pybuffer_new(c, a->ret, own, NULL);
	return (PyObject *)buffer_hinted(b, a->options.o.flags);
}

PyObject *Connection_load(PyObject *self, PyObject *args)
{
	_cleanup_(load_ask_done) struct load_ask a = { .ask.run = run_load,
						       .load = { .struct_size = sizeof(a.load),
								 .progress = on_progress,
								 .remote = &a.remote } };
	PyObject *name;

	if (!PyArg_ParseTuple(args, "pO&OO&O&O&OO&O&O&zO&O&K:load", &a.pulls, texts_arg, &a.sources,
			      &name, options_arg, &a.options, flags_arg, &a.load.flags,
			      deadline_arg, &a.timeout, &a.load.user, u32_arg, &a.load.threads,
			      remote_arg, &a.remote, texts_arg, &a.only, &a.load.strip, bytes_arg,
			      &a.load.sha256, bytes_arg, &a.load.twin, &a.load.keep_ms) ||
	    ((name != Py_None || !a.pulls) && args_text(name, "name", &a.name) < 0))
		return NULL;
	a.load.only = a.only.text;
	a.load.n_only = a.only.n;
	return load_on(connection_of(self), &a, name);
}

PyObject *module_load_key(PyObject *module, PyObject *sources)
{
	_cleanup_(texts_done) struct texts t = { 0 };
	char key[65];
	int r;

	if (!texts_arg(sources, &t) || load_library() < 0)
		return NULL;
	WITHOUT_GIL(r = calls.load_key(t.text, t.n, NULL, key));
	return r < 0 ? error_raise(r) : PyUnicode_FromString(key);
}

PyObject *module_pull_wait(PyObject *module, PyObject *args)
{
	struct gpushm_remote_options remote = { 0 };
	const char *source, *content = NULL;
	struct deadline timeout;
	int r;

	if (!PyArg_ParseTuple(args, "O&O&O&O&:pull_wait", bytes_arg, &source, bytes_arg, &content,
			      deadline_arg, &timeout, remote_arg, &remote) ||
	    load_library() < 0)
		return NULL;
	WITHOUT_GIL(r = calls.pull_wait(source, content, &remote, deadline_left(&timeout),
					on_progress, Py_None));
	return result(r) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- save and verify ---- */

PyObject *module_save(PyObject *module, PyObject *args)
{
	struct gpushm_save_options o = { .struct_size = sizeof(o), .progress = on_progress };
	struct buffer *b;
	const char *path;
	int r;

	if (!PyArg_ParseTuple(args, "O!O&O&O&OO&:save", types.buffer, &b, bytes_arg, &path,
			      bytes_arg, &o.metadata, u32_arg, &o.threads, &o.user, u64_arg,
			      &o.shard_bytes) ||
	    !buffer_is_open(b) || load_library() < 0)
		return NULL;
	buffer_hold(b);
	WITHOUT_GIL(r = calls.save(b->buffer, path, &o));
	return object_none(buffer_release(b, result(r)));
}

PyObject *module_verify(PyObject *module, PyObject *args)
{
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	PyObject *progress;
	struct buffer *b;
	int make, r;

	if (!PyArg_ParseTuple(args, "O!Op:verify", types.buffer, &b, &progress, &make) ||
	    !buffer_is_open(b) || load_library() < 0)
		return NULL;
	buffer_hold(b);
	WITHOUT_GIL(r = (make ? calls.digest : calls.verify)(b->buffer, on_progress, progress,
							     &report));
	return buffer_release(b, result(r)) < 0 ? NULL : PyUnicode_FromString(report.content);
}
