/* SPDX-License-Identifier: MIT
 *
 * Arrays as objects: made, listed with their buffer, closed. One owns an array of libgpushm's and a
 * reference on its buffer. It is immutable, but that it can be closed; what may close it asks first
 * who uses it.
 */
#include "client/python/core/array.h"

#include "client/python/core/error.h"

struct array *array_new(struct buffer *b, struct gpushm_array *a)
{
	struct array *self = object_new(types.array_made);

	if (!self) {
		gpushm_array_free(a);
		return NULL;
	}
	self->array = a;
	self->buffer = (struct buffer *)Py_NewRef((PyObject *)b);
	self->next = b->arrays;
	self->place = &b->arrays;
	if (self->next)
		self->next->place = &self->next;
	b->arrays = self;
	return self;
}

void array_own_buffer(struct array *self)
{
	self->buffer->owner = self;
}

bool array_is_open(const struct array *self)
{
	if (self->array && !(self->buffer->left && self->buffer->owner == self))
		return true;
	PyErr_SetString(PyExc_ValueError, "the array is closed");
	return false;
}

void array_hold(struct array *self)
{
	self->calls++;
	self->buffer->calls++;
}

void array_release(struct array *self)
{
	self->calls--;
	self->buffer->calls--;
	buffer_settle(self->buffer);
}

void array_drop(struct array *self)
{
	if (!self->array)
		return;
	if (self->buffer->owner == self)
		self->buffer->owner = NULL;
	*self->place = self->next;
	if (self->next)
		self->next->place = self->place;
	self->array = gpushm_array_free(self->array);
	buffer_settle(self->buffer);
}

int array_close(struct array *self)
{
	if (!self->array)
		return 0;
	if (self->buffer->owner == self)
		return buffer_close(self->buffer);
	if (self->span) {
		error_format(ERROR_IN_USE, EBUSY, "it stands for the memory of a NumPy array");
		return -1;
	}
	if (self->memoryviews > 0 || self->calls > 0) {
		error_format(
			ERROR_IN_USE, EBUSY,
			"the view can't be closed: alive are %u memoryviews and %u calls of other "
			"threads; delete them first",
			self->memoryviews, self->calls);
		return -1;
	}
	array_drop(self);
	return 0;
}

void array_dealloc(PyObject *o)
{
	struct array *self = (struct array *)o;

	if (self->weakrefs)
		PyObject_ClearWeakRefs(o);
	if (self->buffer)
		array_drop(self);
	/* It may be the last one, and close the buffer. */
	Py_XDECREF((PyObject *)self->buffer);
	object_free(self);
}

Py_ssize_t array_itemsize(const struct array *self)
{
	uint64_t bits = gpushm_dtype_bits(gpushm_array_dtype(self->array));

	return bits % 8 ? 0 : (Py_ssize_t)(bits / 8);
}

void array_span(const struct array *self, uint64_t *ret_below, uint64_t *ret_above)
{
	const int64_t *shape = gpushm_array_shape(self->array);
	const int64_t *strides = gpushm_array_strides(self->array);

	*ret_below = *ret_above = 0;
	if (gpushm_array_size(self->array) == 0)
		return;
	for (int i = 0; i < gpushm_array_ndim(self->array); i++) {
		/* An axis of length 1 has a stride that means nothing. */
		int64_t reach = shape[i] > 1 ? (shape[i] - 1) * strides[i] : 0;

		*(reach < 0 ? ret_below : ret_above) += (uint64_t)(reach < 0 ? -reach : reach);
	}
	*ret_above += array_itemsize(self) ? (uint64_t)array_itemsize(self)
					   : gpushm_array_nbytes(self->array);
}

bool array_is_writable(const struct array *self)
{
	return !self->buffer->sealing && !gpushm_array_read_only(self->array);
}
