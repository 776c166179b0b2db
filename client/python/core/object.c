/* SPDX-License-Identifier: MIT
 *
 * Objects and exceptions. The types, the exceptions and the package's modules are kept here for as
 * long as the process lives. An exception has errno and strerror as every OSError has, and `code`:
 * the daemon's name of the error, "" where the library or this package found it.
 */
#include "client/python/core/object.h"

struct types types;

struct object {
	OBJECT_HEAD
};
PyMemberDef object_members[] = { { "__weaklistoffset__", T_PYSSIZET,
				   offsetof(struct object, weakrefs), READONLY, NULL },
				 { NULL, 0, 0, 0, NULL } };

int types_add(PyObject *module, struct type_row *row)
{
	PyObject *base = row->base ? (PyObject *)*row->base : NULL;

	*row->ret = (PyTypeObject *)PyType_FromModuleAndSpec(module, &row->spec, base);
	return *row->ret ? PyModule_AddType(module, *row->ret) : -1;
}

void *object_new(PyTypeObject *type)
{
	return PyType_GenericAlloc(type, 0);
}

void object_to_none(PyObject **member)
{
	PyObject *before = *member;

	*member = Py_NewRef(Py_None);
	Py_XDECREF(before);
}

void object_free(void *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

	free_object(self);
	/* An object of a heap type holds a reference to its type. */
	Py_DECREF(type);
}

PyObject *Closing_enter(PyObject *o, PyObject *unused)
{
	return Py_NewRef(o);
}

PyObject *Closing_exit(PyObject *o, PyObject *unused)
{
	return PyObject_CallMethod(o, "close", NULL);
}

PyObject *object_none(int r)
{
	return r < 0 ? error_raise(r) : Py_NewRef(Py_None);
}

PyObject *object_iterate(PyObject *o)
{
	_cleanup_(drop_object) PyObject *keys = PyMapping_Keys(o);

	return keys ? PyObject_GetIter(keys) : NULL;
}

PyObject *object_text(const char *text)
{
	return text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
}

PyObject *object_address(void *p)
{
	return p ? PyLong_FromVoidPtr(p) : Py_NewRef(Py_None);
}

void object_append(PyObject **list, PyObject *item)
{
	if (!item || !*list || PyList_Append(*list, item) < 0)
		Py_CLEAR(*list);
	Py_XDECREF(item);
}

PyObject *object_call(PyObject *module, const char *function, const char *format, ...)
{
	_cleanup_(drop_object) PyObject *callable = NULL, *args = NULL;
	va_list list;

	if (!module)
		return PyErr_Format(PyExc_ImportError, "import gpushm, not gpushm._core alone");
	callable = PyObject_GetAttrString(module, function);
	va_start(list, format);
	args = Py_VaBuildValue(format, list);
	va_end(list);
	return callable && args ? PyObject_Call(callable, args, NULL) : NULL;
}

int object_done(PyObject *result)
{
	Py_XDECREF(result);
	return result ? 0 : -1;
}

/* ---- exceptions ---- */

#define NUMBERS_MAX 4
#define KIND(name_, builtin_, ...)                                                        \
	{                                                                                 \
		.name = "gpushm.errors." #name_, .doc = DOC_##name_, .builtin = builtin_, \
		.numbers = {                                                              \
			__VA_ARGS__                                                       \
		}                                                                         \
	}

static const struct {
	const char *name, *doc;
	PyObject **builtin;	  /* its second base; NULL: none */
	int numbers[NUMBERS_MAX]; /* the errno that it stands for; 0: no more */
} kinds[] = {
	[ERROR_BASE] = { .name = "gpushm.Error", .doc = DOC_Error },
	[ERROR_NOT_FOUND] = KIND(NotFound, &PyExc_FileNotFoundError, ENOENT),
	[ERROR_TIMEOUT] = KIND(Timeout, &PyExc_TimeoutError, ETIMEDOUT),
	[ERROR_READ_ONLY] = KIND(ReadOnly, &PyExc_ValueError, EROFS),
	[ERROR_DAEMON] = KIND(DaemonGone, &PyExc_ConnectionError, ECONNRESET, ECONNREFUSED, EPROTO,
			      EPROTONOSUPPORT),
	[ERROR_IN_USE] = KIND(InUse, &PyExc_BufferError, 0),
	[ERROR_STATE] = KIND(StateError, NULL, EBUSY, EALREADY, EBADF),
	[ERROR_ARGUMENT] = KIND(BadArgument, &PyExc_ValueError, EINVAL),
	[ERROR_LAYOUT] = KIND(LayoutError, &PyExc_ValueError, ERANGE, EOVERFLOW),
	[ERROR_UNSUPPORTED] = KIND(NotSupported, &PyExc_NotImplementedError, ENOTSUP, ENOSYS),
	[ERROR_PRODUCER] = KIND(ProducerDied, NULL, EOWNERDEAD),
	[ERROR_DROPPED] = KIND(ReaderDropped, NULL, 0),
	KIND(Exists, &PyExc_FileExistsError, EEXIST),
	KIND(AccessDenied, &PyExc_PermissionError, EACCES, EPERM),
	KIND(NotPublished, &PyExc_BlockingIOError, EAGAIN),
	KIND(Dirty, NULL, EUCLEAN),
	KIND(PoolFull, &PyExc_MemoryError, ENOSPC),
	KIND(TooLarge, &PyExc_MemoryError, EFBIG),
	KIND(LimitReached, NULL, EDQUOT, EUSERS, ENOBUFS),
	KIND(DeviceFailed, NULL, ENODEV),
	KIND(DriverError, NULL, EIO),
	KIND(ForkError, &PyExc_RuntimeError, ECHILD),
	KIND(OutOfMemory, &PyExc_MemoryError, ENOMEM),
	KIND(BadContents, &PyExc_ValueError, EBADMSG, ESTALE),
	KIND(StreamEnded, &PyExc_EOFError, EPIPE),
};

static PyObject *exceptions[array_size(kinds)]; /* owned, for as long as the process lives */

static PyObject *make_exception(size_t kind)
{
	_cleanup_(drop_object) PyObject *bases = NULL, *dict = NULL;

	if (kind == ERROR_BASE) {
		bases = Py_NewRef(PyExc_OSError);
		dict = Py_BuildValue("{s:s}", "code", "");
	} else if (kinds[kind].builtin) {
		bases = PyTuple_Pack(2, exceptions[ERROR_BASE], *kinds[kind].builtin);
	} else {
		bases = Py_NewRef(exceptions[ERROR_BASE]);
	}
	if (!bases || (kind == ERROR_BASE && !dict))
		return NULL;
	return PyErr_NewExceptionWithDoc(kinds[kind].name, kinds[kind].doc, bases, dict);
}

int error_init(PyObject *module)
{
	for (size_t i = 0; i < array_size(kinds); i++) {
		exceptions[i] = make_exception(i);
		if (!exceptions[i] || PyModule_AddObjectRef(module, strrchr(kinds[i].name, '.') + 1,
							    exceptions[i]) < 0)
			return -1;
	}
	return 0;
}

static size_t kind_of(int number)
{
	for (size_t i = 0; i < array_size(kinds); i++)
		for (int n = 0; n < NUMBERS_MAX; n++)
			if (kinds[i].numbers[n] == number && number != 0)
				return i;
	return ERROR_BASE;
}

/* Takes text and code over; NULL means that making them has raised. */
static void *raise(size_t kind, int number, PyObject *text, PyObject *code)
{
	PyObject *e = NULL;

	if (text && code)
		e = PyObject_CallFunction(exceptions[kind], "iO", number, text);
	if (e && PyObject_SetAttrString(e, "code", code) == 0)
		PyErr_SetObject(exceptions[kind], e);
	Py_XDECREF(e);
	Py_XDECREF(text);
	Py_XDECREF(code);
	return NULL;
}

/* The daemon's sentence about a name, with what Python calls the way out. */
static PyObject *text_of(const char *text, int r)
{
	bool taken = r == -EEXIST && strstr(text, "\" is taken: ");

	return PyUnicode_FromFormat("%s%s", text,
				    taken ? "; replace=True of publish_as(), rename(), load() and "
					    "pull() takes it over"
					  : "");
}

/* -EINTR: a signal has ended the request; mostly its handler raises an exception. */
void *error_raise_as(enum error_kind kind, int r)
{
	bool raised = PyErr_Occurred() || (r == -EINTR && PyErr_CheckSignals() < 0);
	/* Read first: a destructor that runs while objects are made may close a buffer, and that
	 * call of libgpushm replaces both texts. */
	const char *text = gpushm_error(), *code = gpushm_error_code();

	if (raised)
		return NULL;
	return raise(kind, -r, text_of(text, r), PyUnicode_FromString(code));
}

void *error_raise(int r)
{
	return error_raise_as(kind_of(-r), r);
}

int error_result(int r)
{
	if (r < 0)
		error_raise(r);
	return r < 0 ? -1 : 0;
}

int error_python(PyObject *type, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	PyErr_FormatV(type, format, args);
	va_end(args);
	return -1;
}

void *error_format(enum error_kind kind, int number, const char *format, ...)
{
	PyObject *text;
	va_list args;

	va_start(args, format);
	text = PyUnicode_FromFormatV(format, args);
	va_end(args);
	return raise(kind, number, text, PyUnicode_FromString(""));
}
