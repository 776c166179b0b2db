/* SPDX-License-Identifier: MIT
 *
 * gpushm._core: libgpushm for Python. This file puts the module together, and has its functions
 * that need no connection. The types and the common connection belong to the process: a second
 * interpreter in it gets an ImportError.
 */
#include "client/python/core/module.h"

#include "client/gpushm_cleanup.h"
#include "client/python/core/arena.h"
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "client/python/core/record.h"
#include "client/python/core/side.h"
#include "proto/kind.h"

#include "client/gpushm_private.h"

#include <sys/syscall.h>
#include <unistd.h>

/* ---- functions for the package ---- */

/* From now on the core makes objects of the package's classes, and calls its modules. */
static PyObject *register_package(PyObject *module, PyObject *args)
{
	PyObject *array, *buffer, *dtype, *driver, *asyncio, *libraries, *meta, *unpublished;

	if (!PyArg_ParseTuple(args, "O!O!OOOOOO:_register", &PyType_Type, &array, &PyType_Type,
			      &buffer, &dtype, &driver, &asyncio, &libraries, &meta, &unpublished))
		return NULL;
	if (!PyType_IsSubtype((PyTypeObject *)array, types.array) ||
	    !PyType_IsSubtype((PyTypeObject *)buffer, types.buffer))
		return PyErr_Format(PyExc_TypeError, "subclasses of Array and of Buffer");
	types.array_made = (PyTypeObject *)Py_NewRef(array);
	types.buffer_made = (PyTypeObject *)Py_NewRef(buffer);
	types.dtype_module = Py_NewRef(dtype);
	types.driver_module = Py_NewRef(driver);
	types.asyncio_module = Py_NewRef(asyncio);
	types.libraries_module = Py_NewRef(libraries);
	types.meta_module = Py_NewRef(meta);
	types.unpublished_module = Py_NewRef(unpublished);
	Py_RETURN_NONE;
}

static PyObject *current_device(PyObject *module, PyObject *unused)
{
	int device = gpushm_current_device();

	return device < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(device);
}

static PyObject *dtype_bits(PyObject *module, PyObject *name)
{
	struct gpushm_dtype type;
	const char *text;

	if (args_text(name, "name", &text) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(
		gpushm_dtype_parse(text, &type) < 0 ? 0 : gpushm_dtype_bits(type));
}

/* ---- closes that do not wait for a GPU ---- */

static PyObject *defer_cleanup(PyObject *module, PyObject *unused)
{
	return object_none(gpushm_defer_cleanup());
}

static PyObject *resume_cleanup(PyObject *module, PyObject *unused)
{
	return object_none(gpushm_resume_cleanup());
}

static PyObject *flush_cleanup(PyObject *module, PyObject *unused)
{
	int r;

	WITHOUT_GIL(r = gpushm_flush_cleanup());
	return object_none(r);
}

static PyObject *set_cleanup_limits(PyObject *module, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "max_count", "max_ratio", NULL };
	uint32_t count;
	double ratio;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&d:set_cleanup_limits", (char **)names,
					 u32_arg, &count, &ratio))
		return NULL;
	return object_none(gpushm_set_cleanup_limits(count, ratio));
}

static PyObject *pending_cleanup(PyObject *module, PyObject *unused)
{
	uint64_t bytes;
	size_t n = gpushm_pending_cleanup(&bytes);

	return Py_BuildValue("nK", (Py_ssize_t)n, (unsigned long long)bytes);
}

/* ---- the module ---- */

/* Where one has no help, its header says what it does. */
static PyMethodDef own_functions[] = {
	{ "_register", register_package, METH_VARARGS,
	  "_register($module, array, buffer, dtype, driver, asyncio, libraries,\n"
	  "          meta, unpublished, /)\n--\n\n"
	  "Sets the classes that open() and create() return, and the modules that the core "
	  "calls." },
	{ "_opened", buffer_list, METH_NOARGS, "_opened($module, /)\n--\n\n" },
	{ "_disconnect", connection_end_common, METH_NOARGS, "_disconnect($module, /)\n--\n\n" },
	{ "_close_streams", side_close_all, METH_NOARGS, "_close_streams($module, /)\n--\n\n" },
	{ "_report_unpublished", buffer_report_unpublished, METH_NOARGS,
	  "_report_unpublished($module, /)\n--\n\n" },
	{ "_stream", stream_handle, METH_O, "_stream($module, stream, /)\n--\n\n" },
	{ "_current_device", current_device, METH_NOARGS,
	  "_current_device($module, /)\n--\n\n"
	  "The ordinal of the GPU of the thread's context; None: it has none." },
	{ "_dtype_bits", dtype_bits, METH_O,
	  "_dtype_bits($module, name, /)\n--\n\n"
	  "Bits of an element of the dtype; 0: gpushm has no dtype of that name." },
	{ "_copy_many", copy_many, METH_VARARGS, "_copy_many($module, copies, stream, /)\n--\n\n" },
	{ "_handle_bytes", handle_make, METH_O, NULL },
	{ "_read_handle", handle_read, METH_O, NULL },
	{ "_pin", handle_pin, METH_VARARGS, NULL },
	{ "_read_dlpack", exchange_read_dlpack, METH_O,
	  "_read_dlpack($module, capsule, /)\n--\n\n" },
	{ "_copy_of", exchange_copy_of, METH_VARARGS,
	  "_copy_of($module, array, tensor, api, /)\n--\n\n" },
	{ "_tensors", exchange_tensors, METH_VARARGS,
	  "_tensors($module, buffer, names, api, /)\n--\n\n" },
	{ "_load_key", load_key, METH_O,
	  "_load_key($module, sources, /)\n--\n\n"
	  "The key of these files' headers, inodes and times: 64 hexadecimal digits." },
	{ "_pull_wait", load_pull_wait, METH_VARARGS, NULL },
	{ "_save", load_save, METH_VARARGS, NULL },
	{ "_verify", load_verify, METH_VARARGS,
	  "_verify($module, buffer, progress, make, /)\n--\n\n"
	  "The digest. make: leaves that of a buffer that is being filled, for verify()." },
	{ "_arena_new", arena_new, METH_VARARGS,
	  "_arena_new($module, address, nbytes, device, /)\n--\n\n" },
	{ "_arena_use", arena_use, METH_O, "_arena_use($module, id, /)\n--\n\n" },
	{ "_arena_take", arena_take, METH_VARARGS, "_arena_take($module, id, nbytes, /)\n--\n\n" },
	{ "_arena_stat", arena_stat, METH_O, "_arena_stat($module, id, /)\n--\n\n" },
	{ "_arena_drop", arena_drop, METH_O, "_arena_drop($module, id, /)\n--\n\n" },
	{ "_defer_cleanup", defer_cleanup, METH_NOARGS, NULL },
	{ "_resume_cleanup", resume_cleanup, METH_NOARGS, NULL },
	{ "flush_cleanup", flush_cleanup, METH_NOARGS,
	  "flush_cleanup($module, /)\n--\n\n"
	  "Does all deferred closes. StateError: inside of defer_cleanup(). Waits for the GPU." },
	{ "set_cleanup_limits", KEYWORDS(set_cleanup_limits), METH_VARARGS | METH_KEYWORDS,
	  "set_cleanup_limits($module, /, max_count, max_ratio)\n--\n\n"
	  "Limits the deferred closes outside of defer_cleanup(): their number, on all GPUs\n"
	  "together, and their part of a GPU's memory, 0 to 1. The defaults are\n"
	  "$GPUSHM_MAX_PENDING_UNMAPS_COUNT, else 0, and $GPUSHM_MAX_PENDING_UNMAPS_RATIO,\n"
	  "else 0.2." },
	{ "pending_cleanup", pending_cleanup, METH_NOARGS,
	  "pending_cleanup($module, /)\n--\n\n(buffers, bytes) of the deferred closes." },
	{ NULL, NULL, 0, NULL }
};

/* Methods of Connection, too. */
static PyMethodDef requests[] = {
	{ "_create", method_create, METH_VARARGS,
	  "_create($self, *arguments)\n--\n\nSee gpushm._calls." },
	{ "_open_or_create", method_open_or_create, METH_VARARGS,
	  "_open_or_create($self, *arguments)\n--\n\nSee gpushm._calls." },
	{ "open", KEYWORDS(method_open), METH_FASTCALL | METH_KEYWORDS,
	  "open($self, name, access='r', timeout=0, *, array=None, dtype=None,\n"
	  "     shape=None, strides=None, offset=None, device=None, refuse_dirty=False)\n--\n\n"
	  "Attaches to a published buffer and returns its array; copies nothing.\n\n"
	  "access: 'r'; 'r+' to write to a shared buffer; 'c' for copy-on-write, in host pools:\n"
	  "this process may write, and nobody else sees it. timeout: seconds to wait until\n"
	  "the name is published, None for ever; other threads run meanwhile, and Ctrl-C\n"
	  "works. array: the name of the array, where the buffer has many. dtype, shape,\n"
	  "strides and offset (both in bytes, the offset from the buffer's start) replace\n"
	  "parts of the array's layout; the result must fit into the buffer. An array that is\n"
	  "not in C order keeps its strides, and another shape of it needs new ones. device:\n"
	  "map it for that GPU, or 'current' for this thread's, by peer access; None is the\n"
	  "GPU that has the memory, with a DeviceWarning where the thread works on another\n"
	  "one.\n"
	  "refuse_dirty: raise Dirty for a buffer whose writer died, or wait until it is clean.\n\n"
	  "close(), the end of its with block, or the end of the last reference gives the\n"
	  "buffer back; close() describes what happens to views and tensors. Asks the daemon:\n"
	  "one round trip of some 10 us, without the GIL. Errors: NotFound, NotPublished,\n"
	  "Timeout, AccessDenied, ReadOnly (to write to a sealed buffer), Dirty, LimitReached,\n"
	  "NotSupported ('c' of GPU or pinned memory), DeviceFailed, LayoutError, DaemonGone." },
	{ "open_many", KEYWORDS(method_open_many), METH_FASTCALL | METH_KEYWORDS,
	  "open_many($self, name, access='r', timeout=0, *, device=None,\n"
	  "          refuse_dirty=False)\n--\n\n"
	  "Attaches to a published buffer of many arrays, in one round trip. The Buffer maps\n"
	  "their names to Arrays. Otherwise as open()." },
	{ "_send_open", KEYWORDS(method_send_open), METH_FASTCALL | METH_KEYWORDS,
	  "_send_open($self, name, access, timeout, **options)\n--\n\n"
	  "A _Call for open_async(). With refuse_dirty it does not wait." },
	{ "_query", method_query, METH_VARARGS,
	  "_query($self, *arguments)\n--\n\nSee gpushm._calls." },
	{ "_send_wait", method_send_wait, METH_VARARGS,
	  "_send_wait($self, name, timeout, /)\n--\n\nA _Call for wait_async()." },
	{ "watch", method_watch, METH_VARARGS,
	  "watch($self, /, *what)\n--\n\n"
	  "A Watch of names, and of the buffers of Arrays and Buffers. Its Events say when one\n"
	  "is published, dirty, clean, unlinked or gone, and when the daemon was restarted. If\n"
	  "a name is published already, that is the first event. Where a name goes from one\n"
	  "buffer to another, 'unlinked' of the old one comes first, and the Event 'published'\n"
	  "of the new one has its id as previous. Errors: DaemonGone, LimitReached (256)." },
	{ "_events", method_events, METH_VARARGS,
	  "_events($self, after, types, timeout, /)\n--\n\n"
	  "A list of the LoggedEvents after that number, the number for the next call, and how\n"
	  "many are gone. See events()." },
	{ "_load", method_load, METH_VARARGS, "_load($self, *arguments)\n--\n\nSee gpushm._load." },
	{ "_stream_new", method_stream, METH_VARARGS,
	  "_stream_new($self, *arguments)\n--\n\nSee gpushm._calls." },
	{ "_follow", method_follow, METH_VARARGS,
	  "_follow($self, *arguments)\n--\n\nSee gpushm._calls." },
	{ "set_timeout", method_set_timeout, METH_O,
	  "set_timeout($self, seconds, /)\n--\n\n"
	  "How long a request waits for the daemon's reply; None: without a limit. Then it raises\n"
	  "Timeout, and the connection stays good. A timeout of the call itself comes on top.\n"
	  "$GPUSHM_TIMEOUT_MS is the default, else 60 s." },
	{ NULL, NULL, 0, NULL }
};

/* A base before its types. */
static int add_types(PyObject *module)
{
	struct type_row *const rows[] = { &of_buffer_row, &call_row,  &watch_row, &buffer_row,
					  &array_row,	  &side_row,  &frame_row, &graph_row,
					  &producer_row,  &reader_row };

	for (size_t i = 0; i < array_size(rows); i++)
		if (types_add(module, rows[i]) < 0)
			return -1;
	return 0;
}

/* In the main thread: SIGINT has come, and its handler has not run. The handler runs when the
 * request has ended, because it may make requests of the same connection. */
static int is_interrupted(void)
{
	PyGILState_STATE state;
	int r;

	if (syscall(SYS_gettid) != getpid())
		return 0;
	state = PyGILState_Ensure();
	r = PyOS_InterruptOccurred();
	if (r)
		PyErr_SetInterrupt();
	PyGILState_Release(state);
	return r;
}

/* The words of the kinds of pools for which that bool of struct kind is true. */
static int add_kinds(PyObject *module, const char *name, size_t member)
{
	_cleanup_(drop_object) PyObject *list = PyList_New(0), *words = NULL;
	int r = list ? 0 : -1;

	for (unsigned i = 1; i < KIND_END && r == 0; i++) {
		_cleanup_(drop_object) PyObject *word = PyUnicode_FromString(kind_word(i));

		if (!word || *(const bool *)((const char *)kind_of(i) + member))
			r = word ? PyList_Append(list, word) : -1;
	}
	words = r == 0 ? PyList_AsTuple(list) : NULL;
	return words ? PyModule_AddObjectRef(module, name, words) : -1;
}

static int module_exec(PyObject *module)
{
	if (types.array)
		return error_python(PyExc_ImportError,
				    "gpushm is in use by another interpreter of this process");
	if (error_init(module) < 0 || record_init(module) < 0 || add_types(module) < 0 ||
	    connection_init(module, requests) < 0 ||
	    PyModule_AddFunctions(module, own_functions) < 0 ||
	    PyModule_AddFunctions(module, requests) < 0 ||
	    add_kinds(module, "_ON_GPU", offsetof(struct kind, on_gpu)) < 0 ||
	    add_kinds(module, "_BY_DRIVER", offsetof(struct kind, by_driver)) < 0 ||
	    add_kinds(module, "_READ_ONLY", offsetof(struct kind, read_only)) < 0)
		return -1;
	gpushm_private_on_interrupt(is_interrupted);
	gpushm_private_set_loader_finder(load_offer);
	types.array_made = types.array;
	types.buffer_made = types.buffer;
	if (PyModule_AddObjectRef(module, "_common", (PyObject *)connection_of(module)) < 0)
		return -1;
	return PyModule_AddStringConstant(module, "library_version", gpushm_version());
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, module_exec }, { 0, NULL } };
static struct PyModuleDef definition = { .m_base = PyModuleDef_HEAD_INIT,
					 .m_name = "gpushm._core",
					 .m_doc = "libgpushm, as the package gpushm uses it.",
					 .m_slots = slots };

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&definition);
}
