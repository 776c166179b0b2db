/* SPDX-License-Identifier: MIT
 *
 * What every object of the package needs to be made and freed. It keeps the types, which live as
 * long as the process does.
 */
#include "client/python/core/object.h"

struct types types;

PyTypeObject *types_add(PyObject *module, PyType_Spec *spec)
{
	PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

	if (!type || PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, type) < 0) {
		Py_XDECREF(type);
		return NULL;
	}
	return (PyTypeObject *)type;
}

void *object_new(PyTypeObject *type)
{
	return PyType_GenericAlloc(type, 0);
}

void object_free(void *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

	free_object(self);
	/* An object of a heap type has a reference on it. */
	Py_DECREF(type);
}

PyObject *object_call_python(const char *module, const char *name, const char *format, ...)
{
	_cleanup_(drop_object) PyObject *m = NULL, *function = NULL, *args = NULL;
	va_list list;

	m = PyImport_ImportModule(module);
	if (!m)
		return NULL;
	function = PyObject_GetAttrString(m, name);
	va_start(list, format);
	args = Py_VaBuildValue(format, list);
	va_end(list);
	if (!function || !args)
		return NULL;
	return PyObject_Call(function, args, NULL);
}
