/* SPDX-License-Identifier: MIT
 *
 * The warning is a RuntimeWarning, as asyncio's "coroutine was never awaited" is, because Python
 * hides every ResourceWarning unless the user asks for it. The place is taken when the buffer is
 * made, so this costs create() some 0.3 us.
 */
#include "client/python/core/unpublished.h"

static PyObject *warning; /* owned, for as long as the process lives */

int unpublished_init(PyObject *module)
{
	warning = PyErr_NewExceptionWithDoc(
		"gpushm.errors.UnpublishedWarning",
		"A buffer was closed before it was published, so its contents are gone.",
		PyExc_RuntimeWarning, NULL);
	return warning ? PyModule_AddObjectRef(module, "UnpublishedWarning", warning) : -1;
}

/* ---- the place ---- */

/* The name of the frame's module, a new reference; NULL without an exception: it has none. */
static PyObject *module_of(PyObject *frame)
{
	_cleanup_(drop_object) PyObject *globals = PyObject_GetAttrString(frame, "f_globals");
	PyObject *name = globals ? PyDict_GetItemString(globals, "__name__") : NULL;

	PyErr_Clear();
	return name && PyUnicode_Check(name) ? Py_NewRef(name) : NULL;
}

static bool is_ours(PyObject *module)
{
	_cleanup_(drop_object) PyObject *prefix = PyUnicode_FromString("gpushm.");

	return module && prefix && PyUnicode_Tailmatch(module, prefix, 0, PY_SSIZE_T_MAX, -1) == 1;
}

static PyObject *place_of(PyObject *frame, PyObject *module)
{
	_cleanup_(drop_object) PyObject *code = PyObject_GetAttrString(frame, "f_code");
	PyObject *file = code ? PyObject_GetAttrString(code, "co_filename") : NULL;

	return file ? Py_BuildValue("(NiO)", file, PyFrame_GetLineNumber((PyFrameObject *)frame),
				    module ? module : Py_None)
		    : NULL;
}

PyObject *unpublished_place(void)
{
	_cleanup_(drop_object) PyObject *frame = (PyObject *)PyEval_GetFrame();

	Py_XINCREF(frame);
	while (frame && frame != Py_None) {
		_cleanup_(drop_object) PyObject *module = module_of(frame);
		PyObject *outer;

		if (!is_ours(module))
			return place_of(frame, module);
		outer = PyObject_GetAttrString(frame, "f_back");
		Py_DECREF(frame);
		frame = outer;
	}
	return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- the warning ---- */

/* The dict in which Python notes that it has shown a warning of that module; borrowed, or NULL. */
static PyObject *registry_of(PyObject *module_name)
{
	_cleanup_(drop_object) PyObject *module = NULL, *fresh = NULL;
	PyObject *dict, *found;

	module = PyUnicode_Check(module_name) ? PyImport_GetModule(module_name) : NULL;
	dict = module && PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
	found = dict ? PyDict_GetItemString(dict, "__warningregistry__") : NULL;
	fresh = dict && !found ? PyDict_New() : NULL;
	if (fresh && PyDict_SetItemString(dict, "__warningregistry__", fresh) == 0)
		found = fresh;
	PyErr_Clear();
	/* The module's dict keeps it. */
	return found;
}

/* UTF-8, or `otherwise` where it has none, as a file's name that is no text. */
static const char *text_or(PyObject *o, const char *otherwise)
{
	const char *text = o && PyUnicode_Check(o) ? PyUnicode_AsUTF8AndSize(o, NULL) : NULL;

	PyErr_Clear();
	return text ? text : otherwise;
}

int unpublished_warn(PyObject *name, PyObject *place)
{
	_cleanup_(drop_object) PyObject *text = NULL;
	PyObject *file = NULL, *module = NULL;
	int line = 0;

	text = PyUnicode_FromFormat("buffer \"%U\" was closed before it was published, so its "
				    "contents are gone: call publish() first, or discard() if "
				    "that is meant",
				    name);
	if (!text)
		return -1;
	if (PyTuple_Check(place) && !PyArg_ParseTuple(place, "OiO", &file, &line, &module))
		return -1;
	return PyErr_WarnExplicit(warning, text_or(text, ""), text_or(file, "<unknown>"), line,
				  text_or(module, "<unknown>"),
				  module ? registry_of(module) : NULL);
}

void unpublished_warn_quietly(PyObject *name, PyObject *place)
{
	PyObject *type, *value, *traceback;

	PyErr_Fetch(&type, &value, &traceback);
	if (unpublished_warn(name, place) < 0)
		PyErr_WriteUnraisable(name);
	PyErr_Restore(type, value, traceback);
}
