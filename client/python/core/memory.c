/* SPDX-License-Identifier: MIT
 *
 * An array and memory of the host: the buffer protocol (PEP 3118), and copies from and to Python's
 * objects, without the GIL. Shape and strides of a memoryview are those of libgpushm's array, which
 * cannot be closed while a memoryview is alive. Types without a format (bfloat16, float8,
 * dates) are given as plain bytes only; NumPy gets them over _span().
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "proto/dlpack_abi.h"

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "a memoryview points to libgpushm's shapes");

/* The struct module's characters, and NumPy's for complex numbers. */
static const struct {
	const char *dtype, *format;
} formats[] = {
	{ "bool", "?" },       { "int8", "b" },	       { "int16", "h" },   { "int32", "i" },
	{ "int64", "q" },      { "uint8", "B" },       { "uint16", "H" },  { "uint32", "I" },
	{ "uint64", "Q" },     { "float16", "e" },     { "float32", "f" }, { "float64", "d" },
	{ "complex64", "Zf" }, { "complex128", "Zd" },
};

/* self->format, which a memoryview points to: it keeps the array. */
static const char *record_format(struct array *self)
{
	const char *descr = gpushm_array_descr(self->array), *text;
	_cleanup_(drop_object) PyObject *found = NULL;

	if (self->format || !descr)
		return self->format;
	found = object_call(types.dtype_module, "record_format", "(s)", descr);
	text = found && found != Py_None ? PyUnicode_AsUTF8AndSize(found, NULL) : NULL;
	if (text)
		self->format = strdup(text);
	return self->format;
}

static const char *format_of(struct array *self)
{
	char name[32] = "";

	gpushm_dtype_format(gpushm_array_dtype(self->array), name, sizeof(name));
	for (size_t i = 0; i < array_size(formats); i++)
		if (strcmp(name, formats[i].dtype) == 0)
			return formats[i].format;
	return record_format(self);
}

static int refuse(const char *why)
{
	return error_python(PyExc_BufferError, "%s", why);
}

/* Whether the CPU reaches the memory, and may use it as asked. */
static int check_memory(struct array *self, int flags)
{
	if (!array_is_open(self) || !buffer_is_mapped(self->buffer))
		return -1;
	if (!gpushm_array_host_ptr(self->array))
		return array_check_child(self) < 0
			       ? -1
			       : refuse("the array is on a GPU: copy_to_host() has its bytes");
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

/* Elements narrower than a byte are given as the bytes that hold them. An array without axes has
 * neither shape nor strides. A request without a shape gets a row of bytes, as PEP 3118 and
 * memoryview have it. */
static int fill_shape(struct array *self, Py_buffer *view, int flags)
{
	bool packed = array_itemsize(self) == 0;
	int ndim = gpushm_array_ndim(self->array);

	view->itemsize = packed ? 1 : array_itemsize(self);
	if (packed && (flags & PyBUF_ND))
		return refuse("elements narrower than a byte have no shape that the buffer "
			      "protocol knows");
	if (flags & PyBUF_FORMAT) {
		view->format = (char *)format_of(self);
		if (!view->format && PyErr_Occurred())
			return -1;
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

int memory_get(PyObject *o, Py_buffer *view, int flags)
{
	struct array *self = (struct array *)o;

	*view = (Py_buffer){ 0 };
	if (check_memory(self, flags) < 0 || check_order(self, flags) < 0 ||
	    fill_shape(self, view, flags) < 0)
		return -1;
	view->buf = gpushm_array_host_ptr(self->array);
	view->len = (Py_ssize_t)gpushm_array_nbytes(self->array);
	view->readonly = !array_is_writable(self);
	/* Noted here, because the buffer may be sealed before memory_release(). */
	view->internal = view->readonly ? NULL : self;
	view->obj = Py_NewRef(o);
	self->memoryviews++;
	self->writable_memoryviews += !view->readonly;
	return 0;
}

void memory_release(PyObject *o, Py_buffer *view)
{
	struct array *self = (struct array *)o;

	self->memoryviews--;
	self->writable_memoryviews -= view->internal != NULL;
	buffer_settle(self->buffer);
}

/* Bytes from element [0, 0, ...] down to the lowest byte and up past the highest byte of all
 * elements; both 0 where there are none. */
static void span_of(const struct array *self, uint64_t *ret_below, uint64_t *ret_above)
{
	const int64_t *shape = gpushm_array_shape(self->array);
	const int64_t *strides = gpushm_array_strides(self->array);

	*ret_below = *ret_above = 0;
	if (gpushm_array_size(self->array) == 0)
		return;
	for (int i = 0; i < gpushm_array_ndim(self->array); i++) {
		/* The stride of an axis of length 1 has no meaning. */
		int64_t reach = shape[i] > 1 ? (shape[i] - 1) * strides[i] : 0;

		*(reach < 0 ? ret_below : ret_above) += (uint64_t)(reach < 0 ? -reach : reach);
	}
	*ret_above += array_itemsize(self) ? (uint64_t)array_itemsize(self)
					   : gpushm_array_nbytes(self->array);
}

PyObject *Array_span(PyObject *o, PyObject *unused)
{
	struct array *self = (struct array *)o, *span;
	struct gpushm_array_spec spec = { sizeof(spec), .ndim = 1 };
	struct gpushm_array *a = NULL;
	uint64_t below, above;
	int64_t bytes;

	if (check_memory(self, 0) < 0)
		return NULL;
	span_of(self, &below, &above);
	bytes = (int64_t)(below + above);
	spec.shape = &bytes;
	/* An array without elements may begin anywhere. */
	spec.offset = bytes ? gpushm_array_offset(self->array) - below : 0;
	gpushm_dtype_parse("uint8", &spec.dtype);
	span = (struct array *)array_new(self->buffer,
					 gpushm_array_over(self->buffer->buffer, &spec, &a), &a);
	if (!span)
		return NULL;
	span->span = true;
	span->span_writable = array_is_writable(self);
	return Py_BuildValue("NK", span, (unsigned long long)below);
}

/* ---- copies ---- */

/* The memory has the array's shape and item size, and any strides; or it is as many contiguous
 * bytes, in C order: then *ret_strides is NULL. */
static int match(const struct array *self, const Py_buffer *view, const int64_t **ret_strides)
{
	*ret_strides = NULL;
	if (array_itemsize(self) && view->itemsize == array_itemsize(self) &&
	    shape_is(self->array, view->ndim, (const int64_t *)view->shape)) {
		*ret_strides = (const int64_t *)view->strides;
		return 0;
	}
	if ((uint64_t)view->len == gpushm_array_nbytes(self->array) &&
	    PyBuffer_IsContiguous(view, 'C'))
		return 0;
	return error_python(
		PyExc_ValueError,
		"the array has %lld elements of %zd bytes, the other side %zd bytes in %d "
		"dimensions: shape and item size must agree, or it must be as many bytes in "
		"C order",
		(long long)gpushm_array_size(self->array), array_itemsize(self), view->len,
		view->ndim);
}

struct copy {
	Py_buffer view;
	struct stream stream;
	bool to_host;
};

static int carry_out(struct array *self, const struct copy *c, const int64_t *strides)
{
	struct gpushm_array *a = self->array;
	void *host = c->view.buf;

	if (c->to_host)
		return c->stream.given
			       ? gpushm_copy_to_host_async(a, host, strides, c->stream.handle)
			       : gpushm_copy_to_host(a, host, strides);
	return c->stream.given ? gpushm_copy_from_host_async(a, host, strides, c->stream.handle)
			       : gpushm_copy_from_host(a, host, strides);
}

/* A copy without a stream uses the legacy default stream, which does not wait for the streams that
 * PyTorch and CuPy make: this waits for those on which the thread works now. */
static int wait_for_streams(struct array *self)
{
	int type, id;

	/* Host memory, or a forked child. */
	if (!gpushm_array_device_ptr(self->array))
		return 0;
	gpushm_array_dlpack_device(self->array, &type, &id);
	return object_done(
		object_call(types.libraries_module, "wait_for_streams", "(N)",
			    type == DLPACK_CUDA ? PyLong_FromLong(id) : Py_NewRef(Py_None)));
}

static int run(struct array *self, const struct copy *c)
{
	const int64_t *strides;
	int r;

	if (!array_is_open(self) || (!c->stream.given && wait_for_streams(self) < 0))
		return -1;
	/* Checked again, because other threads have run. */
	if (!array_is_open(self))
		return -1;
	if ((!c->to_host && array_check_writable(self) < 0) || match(self, &c->view, &strides) < 0)
		return -1;
	array_hold(self);
	self->buffer->writing += !c->to_host;
	WITHOUT_GIL(r = carry_out(self, c, strides));
	self->buffer->writing -= !c->to_host;
	r = error_result(r) < 0 ? -1 : array_queued(self, &c->stream);
	array_release(self);
	return r;
}

static PyObject *copy_with(PyObject *o, PyObject *args, bool to_host)
{
	struct array *self = (struct array *)o;
	struct copy c = { .to_host = to_host };
	PyObject *other, *stream = Py_None;
	int r;

	if (!PyArg_ParseTuple(args, "O|O", &other, &stream) || stream_from(stream, &c.stream) < 0 ||
	    PyObject_GetBuffer(other, &c.view, to_host ? PyBUF_STRIDED : PyBUF_STRIDED_RO) < 0)
		return NULL;
	r = run(self, &c);
	PyBuffer_Release(&c.view);
	return object_none(r);
}

PyObject *Array_read_into(PyObject *o, PyObject *args)
{
	return copy_with(o, args, true);
}

PyObject *Array_write_from(PyObject *o, PyObject *args)
{
	return copy_with(o, args, false);
}

/* ---- many copies, from memory of other libraries by its address ----
 *
 * All of them are queued, and waited for once. The package has checked that the types agree, and
 * keeps the memory.
 */

struct one {
	struct array *array; /* a reference, and held */
	struct shape strides;
};

struct many {
	size_t n;		    /* of those that are held */
	struct one *ones;	    /* owned */
	struct gpushm_copy *copies; /* owned; they point to the strides */
	struct stream stream;
};

/* A tuple: the Array, the address of element [0, 0, ...], its strides in bytes or None, the GPU's
 * ordinal or -1, and perhaps an object that keeps the memory. */
static int read_one(PyObject *o, struct one *one, struct gpushm_copy *ret)
{
	PyObject *array, *strides, *keep;
	unsigned long long address;

	if (!PyArg_ParseTuple(o, "O!KOi|O;(array, address, strides, device, memory)", types.array,
			      &array, &address, &strides, &ret->device, &keep) ||
	    (strides != Py_None && shape_from(strides, "strides", &one->strides) < 0))
		return -1;
	one->array = (struct array *)array;
	ret->struct_size = sizeof(*ret);
	ret->memory = (void *)(uintptr_t)address;
	ret->strides = strides == Py_None ? NULL : one->strides.dims;
	return 0;
}

/* Holds the array, so that no thread closes it meanwhile. */
static int hold_one(struct one *one, struct gpushm_copy *copy)
{
	struct array *a = one->array;

	if (!array_is_open(a) || array_check_writable(a) < 0)
		return -1;
	if (copy->strides && one->strides.ndim != gpushm_array_ndim(a->array))
		return error_python(PyExc_ValueError, "%d strides were given for %d dimensions",
				    one->strides.ndim, gpushm_array_ndim(a->array));
	Py_INCREF((PyObject *)a);
	array_hold(a);
	a->buffer->writing++;
	copy->array = a->array;
	return 0;
}

static void release_all(struct many *m)
{
	while (m->n > 0) {
		struct array *a = m->ones[--m->n].array;

		a->buffer->writing--;
		array_release(a);
		Py_DECREF((PyObject *)a);
	}
	PyMem_Free(m->ones);
	PyMem_Free(m->copies);
}

/* Reads all of them first, because that can run Python's code. */
static int prepare(PyObject *list, size_t n, struct many *m)
{
	m->ones = PyMem_Calloc(n + 1, sizeof(*m->ones));
	m->copies = PyMem_Calloc(n + 1, sizeof(*m->copies));
	if (!m->ones || !m->copies) {
		PyErr_NoMemory();
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		if (read_one(PyList_GetItem(list, (Py_ssize_t)i), &m->ones[i], &m->copies[i]) < 0)
			return -1;
	for (; m->n < n; m->n++)
		if (hold_one(&m->ones[m->n], &m->copies[m->n]) < 0)
			return -1;
	return 0;
}

static int carry_out_many(struct many *m)
{
	const struct order *last = NULL;
	int r;

	WITHOUT_GIL(r = gpushm_copy_many(m->copies, m->n, m->stream.given ? GPUSHM_COPY_ASYNC : 0,
					 m->stream.handle));
	r = error_result(r);
	for (size_t i = 0; i < m->n && r == 0; i++) {
		struct array *a = m->ones[i].array;

		if (array_order(a) != last)
			r = array_queued(a, &m->stream);
		last = array_order(a);
	}
	return r;
}

PyObject *module_copy_many(PyObject *module, PyObject *args)
{
	struct many m = { 0 };
	PyObject *list, *stream;
	int r;

	if (!PyArg_ParseTuple(args, "O!O:_copy_many", &PyList_Type, &list, &stream) ||
	    stream_from(stream, &m.stream) < 0)
		return NULL;
	r = prepare(list, (size_t)PyList_Size(list), &m);
	if (r == 0)
		r = carry_out_many(&m);
	release_all(&m);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}
