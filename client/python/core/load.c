/* SPDX-License-Identifier: MIT
 *
 * load(), save() and verify(): models in files, by libgpushm-load. That library is opened when one
 * of them is called first, so that a process that only attaches to a model does not need it: the
 * one beside this extension, else the system's.
 *
 * The work is done in the calling thread without the GIL. libgpushm-load calls load_on_progress()
 * some ten times a second, which takes the GIL, lets Python handle signals, and calls the program's
 * function. An exception that is raised there stops the work, and nothing is left behind.
 */
#include "client/python/core/load.h"

#include "client/python/core/args.h"
#include "client/python/core/buffer.h"
#include "client/python/core/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define LIBRARY "libgpushm-load.so." GPUSHM_SOVERSION

/* ---- the library ---- */

struct load_calls load_calls;

/* The path of the library beside this extension; LIBRARY if no file is there. */
static const char *library_path(char buf[PATH_MAX])
{
	Dl_info info;
	const char *end;

	if (!dladdr(&load_calls, &info) || !info.dli_fname)
		return LIBRARY;
	end = strrchr(info.dli_fname, '/');
	if (!end || snprintf(buf, PATH_MAX, "%.*s/%s", (int)(end - info.dli_fname), info.dli_fname,
			     LIBRARY) >= PATH_MAX)
		return LIBRARY;
	return access(buf, F_OK) == 0 ? buf : LIBRARY;
}

static int library_failed(void)
{
	error_format(ERROR_UNSUPPORTED, ELIBACC,
		     "load(), pull(), save() and verify() need " LIBRARY
		     ", which can't be opened: %s. Install gpushm's library for models "
		     "(libgpushm-load), or the Python package again",
		     dlerror());
	return -1;
}

int load_library(void)
{
	char path[PATH_MAX];
	void *handle;

	if (load_calls.handle)
		return 0;
	/* Opening it twice, from two threads, is harmless. */
	handle = dlopen(library_path(path), RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return library_failed();
#define FIND(call)                                                                            \
	if (!(load_calls.call = (__typeof__(load_calls.call))dlsym(handle, "gpushm_" #call))) \
		return library_failed();
	FIND(load)
	FIND(load_key)
	FIND(save)
	FIND(verify)
	FIND(digest)
	FIND(pull)
	FIND(pull_wait)
	load_calls.handle = handle;
	return 0;
}

/* ---- progress ---- */

static int call_progress(PyObject *progress, const struct gpushm_load_progress *p)
{
	_cleanup_(drop_object) PyObject *ret = NULL;

	/* libgpushm-load may call once more after the call that has stopped it. */
	if (PyErr_Occurred() || PyErr_CheckSignals() < 0)
		return -1;
	if (progress == Py_None)
		return 0;
	ret = PyObject_CallFunction(progress, "KK", (unsigned long long)p->done,
				    (unsigned long long)p->total);
	return ret ? 0 : -1;
}

int load_on_progress(void *user, const struct gpushm_load_progress *p)
{
	PyGILState_STATE gil = PyGILState_Ensure();
	int r = call_progress(user, p);

	PyGILState_Release(gil);
	return r < 0;
}

int load_result(int r)
{
	if (PyErr_Occurred())
		return -1;
	return error_result(r);
}

int load_check_progress(PyObject *progress)
{
	if (progress == Py_None || PyCallable_Check(progress))
		return 0;
	return error_python(PyExc_TypeError,
			    "progress is a function of (bytes done, bytes in all), or None, not %R",
			    progress);
}

/* ---- lists of texts ---- */

struct texts {
	PyObject *keep;	   /* a list of the bytes that texts point into; owned */
	const char **text; /* owned */
	size_t n;
};

static void texts_done(struct texts *t)
{
	Py_CLEAR(t->keep);
	PyMem_Free(t->text);
}

static int texts_append(struct texts *t, PyObject *item, bool paths)
{
	_cleanup_(drop_object) PyObject *bytes = NULL;
	char *text;

	/* Both refuse a NUL inside. */
	if (paths && !PyUnicode_FSConverter(item, &bytes))
		return -1;
	if (!paths)
		bytes = PyUnicode_AsUTF8String(item);
	if (!bytes || PyBytes_AsStringAndSize(bytes, &text, NULL) < 0 ||
	    PyList_Append(t->keep, bytes) < 0)
		return -1;
	t->text[t->n++] = text;
	return 0;
}

static bool is_one_text(PyObject *o)
{
	return PyUnicode_Check(o) || PyBytes_Check(o) || PyObject_HasAttrString(o, "__fspath__");
}

/* One text or a sequence of them; None: no text. The caller ends *ret with texts_done(), also after
 * a failure. */
static int texts_from(PyObject *o, bool paths, struct texts *ret)
{
	_cleanup_(drop_object) PyObject *row = NULL;
	Py_ssize_t n;

	*ret = (struct texts){ 0 };
	if (o == Py_None)
		return 0;
	row = is_one_text(o) ? PyTuple_Pack(1, o) : PySequence_Tuple(o);
	n = row ? PyTuple_Size(row) : -1;
	if (n < 0)
		return -1;
	ret->keep = PyList_New(0);
	ret->text = PyMem_Calloc((size_t)n + 1, sizeof(*ret->text));
	if (!ret->keep || !ret->text) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		if (texts_append(ret, PyTuple_GetItem(row, i), paths) < 0)
			return -1;
	return 0;
}

/* ---- how bytes come ---- */

void transport_done(struct transport *t)
{
	for (size_t i = 0; i < array_size(t->paths); i++)
		Py_CLEAR(t->paths[i]);
}

static int path_arg(PyObject *o, void *ret)
{
	return o == Py_None ? 1 : PyUnicode_FSConverter(o, ret);
}

static int flags_from(const char *io, const char *via, uint32_t *ret)
{
	if (strcmp(io, "cached") == 0)
		*ret |= GPUSHM_LOAD_CACHED;
	else if (strcmp(io, "direct") == 0)
		*ret |= GPUSHM_LOAD_DIRECT;
	else if (strcmp(io, "auto") != 0)
		return error_python(PyExc_ValueError,
				    "io is \"auto\", \"cached\" to read through the page cache, or "
				    "\"direct\" to read past it, not \"%s\"",
				    io);
	if (strcmp(via, "nixl") == 0)
		*ret |= GPUSHM_LOAD_NIXL;
	else if (strcmp(via, "https") != 0)
		return error_python(PyExc_ValueError, "via is \"https\" or \"nixl\", not \"%s\"",
				    via);
	return 0;
}

int transport_from(PyObject *o, struct transport *t)
{
	const char *io = "auto", *via = "https",
		   **texts[] = { &t->remote.token_file, &t->remote.ca, &t->remote.cert,
				 &t->remote.key };
	PyObject **paths = t->paths;
	int drop_cache = 0;

	t->remote.struct_size = sizeof(t->remote);
	if (o == Py_None)
		return 0;
	if (!PyTuple_Check(o))
		return error_python(PyExc_TypeError, "transport is a gpushm.Transport, not %R", o);
	if (!PyArg_ParseTuple(o, "O&O&O&O&O&O&sps:Transport", path_arg, &paths[0], path_arg,
			      &paths[1], path_arg, &paths[2], path_arg, &paths[3], u32_arg,
			      &t->remote.patience_s, u32_arg, &t->threads, &io, &drop_cache, &via))
		return -1;
	for (size_t i = 0; i < array_size(texts); i++)
		*texts[i] = paths[i] ? PyBytes_AsString(paths[i]) : NULL;
	t->flags = drop_cache ? GPUSHM_LOAD_DROP_CACHE : 0;
	return flags_from(io, via, &t->flags);
}

int transport_check_keywords(PyObject *kwargs)
{
	static const char *const names[] = { "token_file", "ca", "cert",       "key", "patience",
					     "threads",	   "io", "drop_cache", "via" };

	for (size_t i = 0; kwargs && i < array_size(names); i++)
		if (PyDict_GetItemString(kwargs, names[i]))
			return error_python(PyExc_TypeError,
					    "%s= is gpushm.Transport(%s=...) now, which "
					    "transport= takes",
					    names[i], names[i]);
	return 0;
}

/* ---- load and pull ---- */

void load_ask_done(struct load_ask *a)
{
	options_done(&a->options);
	transport_done(&a->transport);
}

/* All waits are the library's, which asks load_on_progress() meanwhile: a pipe can't be read twice.
 */
void load_ask_waits(struct load_ask *a)
{
	uint64_t left = deadline_left(&a->timeout);

	a->options.o.wait_ms = deadline_left(&a->options.wait);
	/* 0 is no limit. */
	a->load.wait_ms = left + (left == 0);
}

int load_ask_from(const struct load_args *args, uint32_t flags, struct load_ask *a)
{
	if ((args->name != Py_None && args_text(args->name, "name", &a->name) < 0) ||
	    load_check_progress(args->progress) < 0 ||
	    options_from(&args->options, &a->options) < 0 ||
	    transport_from(args->transport, &a->transport) < 0)
		return -1;
	a->load.struct_size = sizeof(a->load);
	a->load.flags = (args->if_missing ? GPUSHM_LOAD_IF_MISSING : 0) |
			(args->replace ? GPUSHM_LOAD_REPLACE : 0) |
			(args->verify ? GPUSHM_LOAD_VERIFY : 0) | (a->transport.flags & flags);
	a->load.threads = a->transport.threads;
	a->load.progress = load_on_progress;
	a->load.user = args->progress;
	a->load.remote = &a->transport.remote;
	return 0;
}

PyObject *load_on(struct connection *c, struct load_ask *a, PyObject *name)
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
	if (PyErr_Occurred()) {
		gpushm_close(a->ret);
		return NULL;
	}
	own = name == Py_None ? PyUnicode_FromString(gpushm_buffer_name(a->ret)) : Py_NewRef(name);
	if (!own) {
		gpushm_close(a->ret);
		return NULL;
	}
	b = pybuffer_new(c, a->ret, own, NULL);
	return (PyObject *)buffer_hinted(b, a->options.o.flags);
}

struct file_ask {
	struct load_ask base;
	struct texts sources, only;
};

static void file_ask_done(struct file_ask *a)
{
	texts_done(&a->sources);
	texts_done(&a->only);
	load_ask_done(&a->base);
}

static int run_load(struct gpushm *c, struct ask *ask)
{
	struct file_ask *a = container_of(ask, struct file_ask, base.ask);

	load_ask_waits(&a->base);
	return load_calls.load(c, a->sources.text, a->sources.n, a->base.name, &a->base.options.o,
			       &a->base.load, &a->base.ret);
}

static PyObject *load(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "sources",	  "name",	"pool",	   "mode",
					     "transient", "attrs",	"wait",	   "gid",
					     "device",	  "only",	"strip",   "sha256",
					     "verify",	  "if_missing", "replace", "timeout",
					     "progress",  "transport",	NULL };
	_cleanup_(file_ask_done) struct file_ask a = { .base.ask.run = run_load,
						       .base.timeout.forever = true };
	_cleanup_(drop_object) PyObject *sha256 = NULL;
	struct load_args given = { .progress = Py_None,
				   .transport = Py_None,
				   .options.mode = 0600 };
	PyObject *sources, *only = Py_None, *checksums = Py_None;
	struct gpushm_load_options *o = &a.base.load;

	if (transport_check_keywords(kwargs) < 0 ||
	    !PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$zO&pOO&OOOzOpppO&OO:load",
					 (char **)names, &sources, &given.name, &given.options.pool,
					 mode_arg, &given.options.mode, &given.options.transient,
					 &given.options.attrs, deadline_arg, &a.base.options.wait,
					 &given.options.gid, &given.options.device, &only,
					 &o->strip, &checksums, &given.verify, &given.if_missing,
					 &given.replace, deadline_arg, &a.base.timeout,
					 &given.progress, &given.transport))
		return NULL;
	if ((checksums != Py_None && !PyUnicode_FSConverter(checksums, &sha256)) ||
	    args_text(given.name, "name", &a.base.name) < 0 ||
	    texts_from(sources, true, &a.sources) < 0 || texts_from(only, false, &a.only) < 0 ||
	    load_ask_from(&given, ~GPUSHM_LOAD_NIXL, &a.base) < 0)
		return NULL;
	o->sha256 = sha256 ? PyBytes_AsString(sha256) : NULL;
	o->only = a.only.text;
	o->n_only = a.only.n;
	return load_on(connection_of(self), &a.base, given.name);
}

PyObject *load_key(PyObject *module, PyObject *o)
{
	_cleanup_(texts_done) struct texts sources = { 0 };
	char key[65];
	int r;

	if (texts_from(o, true, &sources) < 0 || load_library() < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = load_calls.load_key(sources.text, sources.n, NULL, key);
	Py_END_ALLOW_THREADS
	return r < 0 ? error_raise(r) : PyUnicode_FromString(key);
}

/* ---- save and verify ---- */

/* A Buffer, a new reference: the argument, or the buffer of an Array, or that name opened. */
static struct buffer *buffer_from(PyObject *self, PyObject *o)
{
	struct buffer *b;

	if (PyUnicode_Check(o))
		return (struct buffer *)PyObject_CallMethod((PyObject *)connection_of(self),
							    "open_many", "O", o);
	if (PyObject_TypeCheck(o, types.array))
		b = (struct buffer *)PyObject_GetAttrString(o, "buffer");
	else if (PyObject_TypeCheck(o, types.buffer))
		b = (struct buffer *)Py_NewRef(o);
	else
		return (void *)
			PyErr_Format(PyExc_TypeError,
				     "the first argument is a Buffer, or the name of one, not %R",
				     (PyObject *)Py_TYPE(o));
	if (b && !buffer_is_open(b))
		Py_CLEAR(b);
	return b;
}

/* Between the two no thread can close it: around calls without the GIL. */
static void buffer_hold(struct buffer *b)
{
	b->calls++;
}

static void buffer_release(struct buffer *b)
{
	b->calls--;
	buffer_settle(b);
	Py_DECREF((PyObject *)b);
}

/* A dict of str to str as JSON text; NULL for None. */
static int json_from(PyObject *o, PyObject **ret)
{
	_cleanup_(drop_object) PyObject *json = NULL;

	*ret = NULL;
	if (o == Py_None)
		return 0;
	json = PyImport_ImportModule("json");
	if (json)
		*ret = PyObject_CallMethod(json, "dumps", "O", o);
	return *ret ? 0 : -1;
}

static PyObject *save(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "buffer",	 "path",       "metadata", "threads",
					     "progress", "shard_size", NULL };
	struct gpushm_save_options o = { .struct_size = sizeof(o), .progress = load_on_progress };
	_cleanup_(drop_object) PyObject *path = NULL, *json = NULL;
	PyObject *what, *metadata = Py_None, *progress = Py_None;
	struct buffer *b;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&|$OO&OO&:save", (char **)names, &what,
					 PyUnicode_FSConverter, &path, &metadata, u32_arg,
					 &o.threads, &progress, u64_arg, &o.shard_bytes) ||
	    load_check_progress(progress) < 0 || json_from(metadata, &json) < 0 ||
	    load_library() < 0)
		return NULL;
	o.user = progress;
	o.metadata = json ? PyUnicode_AsUTF8AndSize(json, NULL) : NULL;
	b = buffer_from(self, what);
	if (!b)
		return NULL;
	buffer_hold(b);
	Py_BEGIN_ALLOW_THREADS
	r = load_calls.save(b->buffer, PyBytes_AsString(path), &o);
	Py_END_ALLOW_THREADS
	r = load_result(r);
	buffer_release(b);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *check(PyObject *self, PyObject *args, PyObject *kwargs, bool make)
{
	static const char *const names[] = { "buffer", "progress", NULL };
	PyObject *what, *progress = Py_None;
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	struct buffer *b;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:verify", (char **)names, &what,
					 &progress) ||
	    load_check_progress(progress) < 0 || load_library() < 0)
		return NULL;
	b = buffer_from(self, what);
	if (!b)
		return NULL;
	buffer_hold(b);
	Py_BEGIN_ALLOW_THREADS
	r = (make ? load_calls.digest : load_calls.verify)(b->buffer, load_on_progress, progress,
							   &report);
	Py_END_ALLOW_THREADS
	r = load_result(r);
	buffer_release(b);
	return r < 0 ? NULL : PyUnicode_FromString(report.content);
}

static PyObject *verify(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return check(self, args, kwargs, false);
}

static PyObject *digest(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return check(self, args, kwargs, true);
}

PyMethodDef load_functions[] = {
	{ "load", KEYWORDS(load), METH_VARARGS | METH_KEYWORDS,
	  "load($self, sources, name, *, pool=None, mode=0o600, transient=False, attrs=None,\n"
	  "     wait=0, gid=None, device=None, only=None, strip=None, sha256=None,\n"
	  "     verify=False, if_missing=False, replace=False, timeout=None, progress=None,\n"
	  "     transport=None)\n--\n\n"
	  "Loads safetensors files into one sealed buffer of that name, and opens it: a Buffer\n"
	  "with an Array for each tensor.\n\n"
	  "sources: a path or several: files, an index (*.index.json) with its shards, a\n"
	  "folder of either, or the URL ('https://...') of a file, of an index, or, with '/'\n"
	  "at its end, of a folder as the Hugging Face Hub has them. pool, mode, transient, attrs, "
	  "wait, gid, device: as create().\n"
	  "only: patterns of the tensors' names, as fnmatch has them; None is all. strip: a\n"
	  "prefix that is taken off the names. sha256: a file of checksums as sha256sum\n"
	  "writes it, to compare with. verify: read back what was copied, and compare.\n\n"
	  "if_missing: open the buffer of that name if it has the contents of these files and\n"
	  "belongs to this user, to root or to an owner in $GPUSHM_TRUST; wait `timeout`\n"
	  "seconds (None: for ever) for another process that loads it; load it if nobody has.\n"
	  "So of many processes one loads. replace: take the name over from another buffer in\n"
	  "the moment in which this one is whole.\n\n"
	  "progress: called some ten times a second with the bytes that are done and those of\n"
	  "all tensors, which are 0 before the header of a pipe has come. transport: a\n"
	  "Transport, which says how the bytes come; None is its defaults.\n\n"
	  "Other threads run meanwhile. After an error, Ctrl-C or an exception of progress\n"
	  "nothing is left behind. Errors: those of create(), BadContents (a file breaks the\n"
	  "format or changed meanwhile, or a checksum differs), Exists, Timeout,\n"
	  "FileNotFoundError, NotSupported (libgpushm-load is not installed)." },
	{ "save", KEYWORDS(save), METH_VARARGS | METH_KEYWORDS,
	  "save($self, buffer, path, *, metadata=None, threads=0, progress=None, shard_size=0)\n"
	  "--\n\n"
	  "Writes the arrays of a Buffer, or of the buffer of that name, to a safetensors file,\n"
	  "which appears whole under its path or not at all.\n\n"
	  "shard_size: for x.safetensors, files x-00001-of-00002.safetensors and so on with so\n"
	  "many bytes of tensors each, and an index x.safetensors.index.json, if one such file\n"
	  "is not enough; 0 is always one file.\n"
	  "metadata: a dict of str to str; None is what the buffer was loaded with. progress:\n"
	  "as load(). Errors: those of open() for a name, NotSupported (a dtype that such files\n"
	  "do not have), OSError." },
	{ "verify", KEYWORDS(verify), METH_VARARGS | METH_KEYWORDS,
	  "verify($self, buffer, *, progress=None)\n--\n\n"
	  "Reads a buffer's arrays back and compares them with the digest that load() left.\n"
	  "Returns the digest.\n\n"
	  "buffer: a Buffer, or the name of one. progress: as load(). Errors: BadContents (they\n"
	  "differ), Error with errno.ENODATA (there is no digest)." },
	{ "_digest", KEYWORDS(digest), METH_VARARGS | METH_KEYWORDS,
	  "_digest($module, buffer, *, progress=None)\n--\n\n"
	  "Leaves the digest of a buffer that is being filled, for verify(), and returns it." },
	{ NULL, NULL, 0, NULL }
};
