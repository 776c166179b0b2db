/* SPDX-License-Identifier: MIT
 *
 * The buffer protocol (PEP 3118). Shape and strides are lent from libgpushm's array, which can't be
 * closed while a memoryview is alive. What has no format character (bfloat16, float8, records) is
 * given as plain bytes only; NumPy gets it over _span().
 */
#include "client/python/core/bytes.h"

#include "client/python/core/error.h"

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes are lent as they are");

/* The struct module's characters, and NumPy's for complex numbers. */
static const struct {
	const char *dtype, *format;
} formats[] = {
	{ "bool", "?" },       { "int8", "b" },	       { "int16", "h" },   { "int32", "i" },
	{ "int64", "q" },      { "uint8", "B" },       { "uint16", "H" },  { "uint32", "I" },
	{ "uint64", "Q" },     { "float16", "e" },     { "float32", "f" }, { "float64", "d" },
	{ "complex64", "Zf" }, { "complex128", "Zd" },
};

static const char *format_of(const struct array *self)
{
	char name[32] = "";

	gpushm_dtype_format(gpushm_array_dtype(self->array), name, sizeof(name));
	for (size_t i = 0; i < array_size(formats); i++)
		if (strcmp(name, formats[i].dtype) == 0)
			return formats[i].format;
	return NULL;
}

static int refuse(const char *why)
{
	PyErr_SetString(PyExc_BufferError, why);
	return -1;
}

/* Whether the memory can be lent at all. */
static int check_memory(struct array *self, int flags)
{
	if (!array_is_open(self))
		return -1;
	if (!gpushm_array_host_ptr(self->array)) {
		struct gpushm_array *a = NULL;
		int r = gpushm_array_dup(self->array, &a);

		/* In a forked child no address is told. */
		gpushm_array_free(a);
		if (r < 0)
			error_raise(r);
		else
			refuse("the array is on a GPU: copy_to_host() has its bytes");
		return -1;
	}
	if ((flags & PyBUF_WRITABLE) && !array_is_writable(self))
		return refuse("the array is read-only");
	return 0;
}

static int check_order(const struct array *self, int flags)
{
	int c = gpushm_array_is_c_contiguous(self->array);
	int f = gpushm_array_is_f_contiguous(self->array);

	if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !c)
		return refuse("the array is not C-contiguous");
	if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !f)
		return refuse("the array is not Fortran-contiguous");
	if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !c && !f)
		return refuse("the array is not contiguous");
	if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !c)
		return refuse("the array is not C-contiguous, and strides were not asked for");
	return 0;
}

/* Elements narrower than a byte are told as the bytes that hold them. What has no axes has neither
 * shape nor strides, and what was asked for without them is a row of bytes (PEP 3118; memoryview's
 * own). */
static int fill_shape(const struct array *self, Py_buffer *view, int flags)
{
	bool packed = array_itemsize(self) == 0;
	int ndim = gpushm_array_ndim(self->array);

	view->itemsize = packed ? 1 : array_itemsize(self);
	if (packed && (flags & PyBUF_ND))
		return refuse("elements narrower than a byte have no shape that the buffer "
			      "protocol knows");
	if (flags & PyBUF_FORMAT) {
		view->format = (char *)format_of(self);
		if (!view->format)
			return refuse(
				"the buffer protocol has no format for that dtype: numpy() and "
				"__dlpack__() know it");
	}
	view->ndim = flags & PyBUF_ND ? ndim : 1;
	if ((flags & PyBUF_ND) && ndim > 0)
		view->shape = (Py_ssize_t *)gpushm_array_shape(self->array);
	if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES && ndim > 0)
		view->strides = (Py_ssize_t *)gpushm_array_strides(self->array);
	return 0;
}

int bytes_get(PyObject *o, Py_buffer *view, int flags)
{
	struct array *self = (struct array *)o;

	*view = (Py_buffer){ 0 };
	if (check_memory(self, flags) < 0 || check_order(self, flags) < 0 ||
	    fill_shape(self, view, flags) < 0)
		return -1;
	view->buf = gpushm_array_host_ptr(self->array);
	view->len = (Py_ssize_t)gpushm_array_nbytes(self->array);
	view->readonly = !array_is_writable(self);
	/* Remembered, because it may be sealed before it is given back. */
	view->internal = view->readonly ? NULL : self;
	view->obj = Py_NewRef(o);
	self->memoryviews++;
	self->writable_memoryviews += !view->readonly;
	return 0;
}

void bytes_release(PyObject *o, Py_buffer *view)
{
	struct array *self = (struct array *)o;

	self->memoryviews--;
	self->writable_memoryviews -= view->internal != NULL;
	buffer_settle(self->buffer);
}

PyObject *bytes_span(PyObject *o, PyObject *unused)
{
	struct array *self = (struct array *)o;
	struct gpushm_array_spec spec = { .ndim = 1 };
	struct gpushm_array *a = NULL;
	uint64_t below, above;
	struct array *span;
	int64_t bytes;
	int r;

	if (check_memory(self, 0) < 0)
		return NULL;
	array_span(self, &below, &above);
	bytes = (int64_t)(below + above);
	spec.shape = &bytes;
	/* An array without elements may begin anywhere. */
	spec.offset = bytes ? gpushm_array_offset(self->array) - below : 0;
	gpushm_dtype_parse("uint8", &spec.dtype);
	r = gpushm_array_over(self->buffer->buffer, &spec, &a);
	if (r < 0)
		return error_raise(r);
	span = array_new(self->buffer, a);
	if (!span)
		return NULL;
	span->span = true;
	span->span_writable = array_is_writable(self);
	return Py_BuildValue("NK", span, (unsigned long long)below);
}
