/* SPDX-License-Identifier: MIT
 *
 * Copies to and from the memory of Python's objects, without the GIL. The other side has the
 * array's shape and item size, any strides; or it is so many contiguous bytes, in C order.
 */
#include "client/python/core/copy.h"

#include "client/python/core/error.h"
#include "client/python/core/stream.h"

static bool same_shape(const struct array *self, const Py_buffer *view)
{
	const int64_t *shape = gpushm_array_shape(self->array);

	if (view->ndim != gpushm_array_ndim(self->array) || view->itemsize != array_itemsize(self))
		return false;
	for (int i = 0; i < view->ndim; i++)
		if (view->shape[i] != shape[i])
			return false;
	return true;
}

/* The other side's strides, NULL for C order. -1: raised. */
static int match(const struct array *self, const Py_buffer *view, const int64_t **ret_strides)
{
	*ret_strides = NULL;
	if (array_itemsize(self) && same_shape(self, view)) {
		*ret_strides = (const int64_t *)view->strides;
		return 0;
	}
	if ((uint64_t)view->len == gpushm_array_nbytes(self->array) &&
	    PyBuffer_IsContiguous(view, 'C'))
		return 0;
	PyErr_Format(PyExc_ValueError,
		     "the array has %lld elements of %zd bytes, the other side %zd bytes in %d "
		     "dimensions: "
		     "shape and item size must agree, or it must be as many bytes in C order",
		     (long long)gpushm_array_size(self->array), array_itemsize(self), view->len,
		     view->ndim);
	return -1;
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

static int run(struct array *self, const struct copy *c)
{
	const int64_t *strides;
	int r;

	/* Now, when both sides are known: what told of them may be Python's, and have closed it. */
	if (!array_is_open(self))
		return -1;
	if (!c->to_host && !array_is_writable(self)) {
		error_format(ERROR_READ_ONLY, EROFS, "buffer \"%s\" is open for reading only",
			     gpushm_buffer_name(self->buffer->buffer));
		return -1;
	}
	if (match(self, &c->view, &strides) < 0)
		return -1;
	array_hold(self);
	self->buffer->writing += !c->to_host;
	Py_BEGIN_ALLOW_THREADS
	r = carry_out(self, c, strides);
	Py_END_ALLOW_THREADS
	self->buffer->writing -= !c->to_host;
	if (r < 0)
		error_raise(r);
	else
		r = buffer_queued(self->buffer, &c->stream);
	array_release(self);
	return r < 0 ? -1 : 0;
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
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *copy_read_into(PyObject *o, PyObject *args)
{
	return copy_with(o, args, true);
}

PyObject *copy_write_from(PyObject *o, PyObject *args)
{
	return copy_with(o, args, false);
}
