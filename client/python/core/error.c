/* SPDX-License-Identifier: MIT
 *
 * The exceptions and what errno each stands for. They are made here and never change. An exception
 * has errno and strerror as every OSError has, and `code`: the daemon's word for it, "" where it
 * was found on this side.
 */
#include "client/python/core/error.h"

#define NUMBERS_MAX 4

static const struct {
	const char *name;
	PyObject **builtin; /* what else it is; NULL: nothing */
	int numbers[NUMBERS_MAX];
	const char *doc;
} kinds[] = {
	[ERROR_BASE] = { "gpushm.Error", NULL, { 0 }, "Whatever goes wrong in gpushm." },
	[ERROR_NOT_FOUND] = { "gpushm.NotFound",
			      &PyExc_FileNotFoundError,
			      { ENOENT },
			      "No buffer, array or pool of that name." },
	[ERROR_EXISTS] = { "gpushm.Exists",
			   &PyExc_FileExistsError,
			   { EEXIST },
			   "The name is taken." },
	[ERROR_ACCESS] = { "gpushm.AccessDenied",
			   &PyExc_PermissionError,
			   { EACCES, EPERM },
			   "This user may not." },
	[ERROR_TIMEOUT] = { "gpushm.Timeout",
			    &PyExc_TimeoutError,
			    { ETIMEDOUT },
			    "The time was over before the name was published." },
	[ERROR_NOT_PUBLISHED] = { "gpushm.NotPublished",
				  &PyExc_BlockingIOError,
				  { EAGAIN },
				  "The buffer is still being filled." },
	[ERROR_READ_ONLY] = { "gpushm.ReadOnly",
			      &PyExc_ValueError,
			      { EROFS },
			      "A write to what is open, or sealed, for reading only." },
	[ERROR_DIRTY] = { "gpushm.Dirty",
			  NULL,
			  { EUCLEAN },
			  "A writer died while it held the buffer." },
	[ERROR_POOL_FULL] = { "gpushm.PoolFull",
			      &PyExc_MemoryError,
			      { ENOSPC },
			      "The pool, or its device, has no room." },
	[ERROR_TOO_LARGE] = { "gpushm.TooLarge",
			      &PyExc_MemoryError,
			      { EFBIG },
			      "No buffer of that size is possible in that pool." },
	[ERROR_LIMIT] = { "gpushm.LimitReached",
			  NULL,
			  { EDQUOT },
			  "A limit of this user, or of the daemon, is reached." },
	[ERROR_DEVICE] = { "gpushm.DeviceFailed",
			   NULL,
			   { ENODEV },
			   "No driver, no such GPU in this process, or a pool that has failed." },
	[ERROR_DRIVER] = { "gpushm.DriverError", NULL, { EIO }, "A driver call failed." },
	[ERROR_DAEMON] = { "gpushm.DaemonGone",
			   &PyExc_ConnectionError,
			   { ECONNRESET, ECONNREFUSED, EPROTO, EPROTONOSUPPORT },
			   "No daemon, or not the one that there was." },
	[ERROR_FORK] = { "gpushm.ForkError",
			 &PyExc_RuntimeError,
			 { ECHILD },
			 "An object of the parent process, used after fork()." },
	[ERROR_IN_USE] = { "gpushm.InUse",
			   &PyExc_BufferError,
			   { 0 },
			   "Views, tensors or memoryviews are alive." },
	[ERROR_STATE] = { "gpushm.StateError", NULL, { EBUSY }, "The buffer's state forbids it." },
	[ERROR_ARGUMENT] = { "gpushm.BadArgument",
			     &PyExc_ValueError,
			     { EINVAL },
			     "An argument has no sense." },
	[ERROR_LAYOUT] = { "gpushm.LayoutError",
			   &PyExc_ValueError,
			   { ERANGE, EOVERFLOW },
			   "An array does not fit its buffer." },
	[ERROR_UNSUPPORTED] = { "gpushm.NotSupported",
				&PyExc_NotImplementedError,
				{ ENOTSUP },
				"It would need a copy, or the type does not allow it." },
	[ERROR_NO_MEMORY] = { "gpushm.OutOfMemory",
			      &PyExc_MemoryError,
			      { ENOMEM },
			      "No memory, here or in the daemon." },
};
_Static_assert(array_size(kinds) == ERROR_KINDS, "a kind for each name");

static PyObject *exceptions[ERROR_KINDS]; /* owned, for as long as the process lives */

static PyObject *make(enum error_kind kind)
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
	for (int i = 0; i < ERROR_KINDS; i++) {
		exceptions[i] = make((enum error_kind)i);
		if (!exceptions[i] || PyModule_AddObjectRef(module, strchr(kinds[i].name, '.') + 1,
							    exceptions[i]) < 0)
			return -1;
	}
	return 0;
}

static enum error_kind kind_of(int number)
{
	for (int i = 0; i < ERROR_KINDS; i++)
		for (int n = 0; n < NUMBERS_MAX; n++)
			if (kinds[i].numbers[n] == number && number != 0)
				return (enum error_kind)i;
	return ERROR_BASE;
}

/* Takes text and code over; NULL: raised. */
static void *raise(enum error_kind kind, int number, PyObject *text, PyObject *code)
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

void *error_raise_as(enum error_kind kind, int r)
{
	/* Both before anything else: a destructor that runs meanwhile may close a buffer. */
	const char *text = gpushm_error(), *code = gpushm_error_code();

	if (PyErr_Occurred())
		return NULL;
	return raise(kind, -r, PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"),
		     PyUnicode_FromString(code));
}

void *error_raise(int r)
{
	return error_raise_as(kind_of(-r), r);
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
