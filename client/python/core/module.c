/* SPDX-License-Identifier: MIT
 *
 * gpushm._core: libgpushm for Python. Here it is put together; what each part does stands in the
 * file of its name. The types and the common connection are the process's: a second interpreter in
 * it gets an ImportError.
 */
#include "client/python/core/array_type.h"
#include "client/python/core/buffer.h"
#include "client/python/core/buffer_type.h"
#include "client/python/core/connection.h"
#include "client/python/core/create.h"
#include "client/python/core/defer.h"
#include "client/python/core/error.h"
#include "client/python/core/look.h"
#include "client/python/core/names.h"
#include "client/python/core/object.h"
#include "client/python/core/open.h"
#include "client/python/core/stream.h"
#include "client/python/core/watch.h"

/* The package's own classes are what the core makes from now on. */
static PyObject *register_classes(PyObject *module, PyObject *args)
{
	PyObject *array, *buffer;

	if (!PyArg_ParseTuple(args, "O!O!:_register", &PyType_Type, &array, &PyType_Type, &buffer))
		return NULL;
	if (!PyType_IsSubtype((PyTypeObject *)array, types.array) ||
	    !PyType_IsSubtype((PyTypeObject *)buffer, types.buffer)) {
		PyErr_SetString(PyExc_TypeError, "subclasses of Array and of Buffer");
		return NULL;
	}
	Py_XDECREF((PyObject *)types.array_made);
	Py_XDECREF((PyObject *)types.buffer_made);
	types.array_made = (PyTypeObject *)Py_NewRef(array);
	types.buffer_made = (PyTypeObject *)Py_NewRef(buffer);
	Py_RETURN_NONE;
}

static PyObject *opened(PyObject *module, PyObject *unused)
{
	return buffer_list();
}

static PyMethodDef own_functions[] = {
	{ "_opened", opened, METH_NOARGS,
	  "_opened($module, /)\n--\n\n"
	  "A list of the buffers that this process has open." },
	{ "_register", register_classes, METH_VARARGS,
	  "_register($module, array, buffer, /)\n--\n\n"
	  "Subclasses that open() and create() return from now on." },
	{ "_disconnect", connection_end_common, METH_NOARGS,
	  "_disconnect($module, /)\n--\n\n"
	  "Ends the process's own connection; the next call makes a new one." },
	{ NULL, NULL, 0, NULL }
};

static int add_functions(PyObject *module)
{
	PyMethodDef *const verbs[] = { create_verbs, open_verbs,  names_verbs,
				       look_verbs,   watch_verbs, NULL };

	if (connection_init(module, verbs) < 0 ||
	    PyModule_AddFunctions(module, own_functions) < 0 ||
	    PyModule_AddFunctions(module, defer_functions) < 0 ||
	    PyModule_AddFunctions(module, stream_functions) < 0)
		return -1;
	for (PyMethodDef *const *v = verbs; *v; v++)
		if (PyModule_AddFunctions(module, *v) < 0)
			return -1;
	return 0;
}

static int module_exec(PyObject *module)
{
	if (types.array) {
		PyErr_SetString(PyExc_ImportError,
				"gpushm is in use by another interpreter of this process");
		return -1;
	}
	if (error_init(module) < 0 || look_init(module) < 0 || watch_init(module) < 0 ||
	    buffer_type_init(module) < 0 || array_type_init(module) < 0 ||
	    add_functions(module) < 0)
		return -1;
	types.array_made = (PyTypeObject *)Py_NewRef((PyObject *)types.array);
	types.buffer_made = (PyTypeObject *)Py_NewRef((PyObject *)types.buffer);
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
