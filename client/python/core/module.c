/* SPDX-License-Identifier: MIT
 *
 * gpushm._core: libgpushm for Python. This file puts the module together, and has its functions
 * that need no connection. The types and the common connection belong to the process: a second
 * interpreter in it gets an ImportError.
 */
#include "client/python/core/module.h"

#include "client/gpushm_cleanup.h"
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
static PyObject *module_register(PyObject *module, PyObject *args)
{
	PyTypeObject *array, *buffer;

	if (!PyArg_ParseTuple(args, "O!O!OOOOOO:_register", &PyType_Type, &array, &PyType_Type,
			      &buffer, &types.dtype_module, &types.driver_module,
			      &types.asyncio_module, &types.libraries_module, &types.meta_module,
			      &types.unpublished_module))
		return NULL;
	if (!PyType_IsSubtype(array, types.array) || !PyType_IsSubtype(buffer, types.buffer))
		return PyErr_Format(PyExc_TypeError, "subclasses of Array and of Buffer");
	types.array_made = array;
	types.buffer_made = buffer;
	/* The tuple keeps them for as long as the process lives. */
	Py_INCREF(args);
	Py_RETURN_NONE;
}

static PyObject *module_current_device(PyObject *module, PyObject *unused)
{
	int device = gpushm_current_device();

	return device < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(device);
}

static PyObject *module_dtype_bits(PyObject *module, PyObject *name)
{
	struct gpushm_dtype type;
	const char *text;

	if (args_text(name, "name", &text) < 0)
		return NULL;
	return PyLong_FromUnsignedLongLong(
		gpushm_dtype_parse(text, &type) < 0 ? 0 : gpushm_dtype_bits(type));
}

/* ---- closes that do not wait for a GPU ---- */

static PyObject *module_defer_cleanup(PyObject *module, PyObject *unused)
{
	return object_none(gpushm_defer_cleanup());
}

static PyObject *module_resume_cleanup(PyObject *module, PyObject *unused)
{
	return object_none(gpushm_resume_cleanup());
}

static PyObject *module_flush_cleanup(PyObject *module, PyObject *unused)
{
	int r;

	WITHOUT_GIL(r = gpushm_flush_cleanup());
	return object_none(r);
}

static PyObject *module_set_cleanup_limits(PyObject *module, PyObject *args, PyObject *kwargs)
{
	uint32_t count;
	double ratio;

	if (!args_parse(args, kwargs, module_set_cleanup_limits, "O&d:set_cleanup_limits", u32_arg,
			&count, &ratio))
		return NULL;
	return object_none(gpushm_set_cleanup_limits(count, ratio));
}

static PyObject *module_pending_cleanup(PyObject *module, PyObject *unused)
{
	uint64_t bytes;
	size_t n = gpushm_pending_cleanup(&bytes);

	return Py_BuildValue("nK", (Py_ssize_t)n, (unsigned long long)bytes);
}

/* ---- the module ---- */

static PyMethodDef functions[] = { METHODS_module, METHODS_common, { NULL, NULL, 0, NULL } };

/* A base before its types. */
static int add_types(PyObject *module)
{
	struct type_row *const rows[] = { &of_buffer_row, &connection_row, &call_row,  &watch_row,
					  &buffer_row,	  &array_row,	   &side_row,  &frame_row,
					  &graph_row,	  &producer_row,   &reader_row };

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
	    PyModule_AddFunctions(module, functions) < 0 ||
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
