/* SPDX-License-Identifier: MIT
 *
 * Arrays as DLPack capsules. libgpushm makes the tensor; here it is wrapped, so that it counts by
 * name in its Buffer and keeps it, and that the last tensor of a buffer whose with block is over
 * closes it. A tensor that had to be copied to the host owns its memory and counts nowhere.
 *
 * A consumer may call the deleter from any thread and with or without the GIL.
 */
#include "client/python/core/dlpack.h"

#include "client/array/dlpack_abi.h"
#include "client/python/core/error.h"
#include "client/python/core/stream.h"

#define VERSIONED "dltensor_versioned"
#define LEGACY "dltensor"
#define IS_COPIED (1u << 1) /* DLPACK_FLAG_BITMASK_IS_COPIED */

struct request {
	bool legacy;
	bool copy;    /* to the host */
	bool as_host; /* pinned memory shall be told as the CPU's */
};

struct tensor {
	union {
		struct dlpack_versioned versioned;
		struct dlpack_legacy legacy;
	};
	struct dlpack_versioned
		*inner;	       /* libgpushm's, which counts in its buffer; owned; NULL: a copy */
	struct buffer *buffer; /* a reference, and counted there; NULL: a copy */
	bool writable;	       /* counted as that */
	void *copy;	       /* the host's memory that it shows; owned; NULL */
	int64_t dims[2 * GPUSHM_MAX_NDIM]; /* shape, strides */
};

/* Without the GIL. */
static void tensor_free(struct tensor *t)
{
	if (t->inner)
		t->inner->deleter(t->inner);
	free(t->copy);
	free(t);
}

/* With the GIL. */
static void tensor_drop(struct tensor *t)
{
	struct buffer *b = take_ptr(t->buffer);
	bool writable = t->writable;

	/* Its array no longer counts in libgpushm when the buffer is closed. */
	tensor_free(t);
	if (!b)
		return;
	b->tensors--;
	b->writable_tensors -= writable;
	buffer_settle(b);
	Py_DECREF((PyObject *)b);
}

/* A consumer's call, from any thread. While Python ends, no other thread gets the GIL any more, and
 * this one may be another: what is left then goes with the process. */
static void on_delete(struct tensor *t)
{
	PyGILState_STATE gil;

	if (!t->buffer || !Py_IsInitialized()) {
		tensor_free(t);
		return;
	}
	gil = PyGILState_Ensure();
	tensor_drop(t);
	PyGILState_Release(gil);
}

static void on_delete_versioned(struct dlpack_versioned *v)
{
	if (v)
		on_delete(container_of(v, struct tensor, versioned));
}

static void on_delete_legacy(struct dlpack_legacy *l)
{
	if (l)
		on_delete(container_of(l, struct tensor, legacy));
}

/* A capsule that nobody took. A consumer renames it. */
static void on_capsule_gone(PyObject *capsule)
{
	void *p;

	if (PyCapsule_IsValid(capsule, VERSIONED)) {
		p = PyCapsule_GetPointer(capsule, VERSIONED);
		tensor_drop(container_of(p, struct tensor, versioned));
	} else if (PyCapsule_IsValid(capsule, LEGACY)) {
		p = PyCapsule_GetPointer(capsule, LEGACY);
		tensor_drop(container_of(p, struct tensor, legacy));
	}
}

/* ---- making one ---- */

/* libgpushm's tensor, with shape and strides of our own. */
static int take_inner(struct tensor *t, const struct array *self, struct dlpack_tensor *ret)
{
	void *inner;
	int r = gpushm_array_to_dlpack(self->array, &inner);

	if (r == -ENOTSUP)
		PyErr_SetString(PyExc_BufferError, gpushm_error());
	if (r < 0) {
		error_raise(r);
		return -1;
	}
	t->inner = inner;
	*ret = t->inner->tensor;
	memcpy(t->dims, ret->shape, (size_t)ret->ndim * sizeof(t->dims[0]));
	memcpy(t->dims + ret->ndim, ret->strides, (size_t)ret->ndim * sizeof(t->dims[0]));
	ret->shape = t->dims;
	ret->strides = t->dims + ret->ndim;
	return 0;
}

/* Replaces what the tensor shows by a copy in the host's memory, in C order. */
static int make_copy(struct tensor *t, struct array *self, struct dlpack_tensor *d)
{
	uint64_t bytes = gpushm_array_nbytes(self->array);
	int64_t stride = 1;
	int r;

	t->inner->deleter(t->inner);
	t->inner = NULL;
	t->copy = malloc(bytes ? bytes : 1);
	if (!t->copy) {
		PyErr_NoMemory();
		return -1;
	}
	array_hold(self);
	Py_BEGIN_ALLOW_THREADS
	r = gpushm_copy_to_host(self->array, t->copy, NULL);
	Py_END_ALLOW_THREADS
	if (r < 0)
		error_raise(r);
	array_release(self);
	for (int i = d->ndim - 1; i >= 0; i--) {
		d->strides[i] = stride;
		stride = (int64_t)((uint64_t)stride * (uint64_t)d->shape[i]);
	}
	d->data = bytes ? t->copy : NULL;
	return r < 0 ? -1 : 0;
}

/* From here on the buffer knows the tensor. */
static void enter_buffer(struct tensor *t, struct array *self)
{
	t->buffer = (struct buffer *)Py_NewRef((PyObject *)self->buffer);
	t->writable = array_is_writable(self);
	t->buffer->tensors++;
	t->buffer->writable_tensors += t->writable;
}

/* PyTorch ends the process over a negative stride (std::terminate), and others overlook it; who
 * asks can't be known. */
static int check_strides(const struct array *self)
{
	const int64_t *shape = gpushm_array_shape(self->array);
	const int64_t *strides = gpushm_array_strides(self->array);

	for (int i = 0; i < gpushm_array_ndim(self->array); i++) {
		if (strides[i] >= 0 || shape[i] < 2)
			continue;
		PyErr_SetString(PyExc_BufferError,
				"the array has a negative stride, which consumers of DLPack do not "
				"know: numpy() or cupy.asarray() takes it, or copy it");
		return -1;
	}
	return 0;
}

static int make(struct tensor *t, struct array *self, const struct request *q)
{
	uint64_t flags = q->copy ? IS_COPIED : array_is_writable(self) ? 0 : DLPACK_READ_ONLY;
	struct dlpack_tensor d;

	if (q->legacy && flags == DLPACK_READ_ONLY) {
		PyErr_SetString(
			PyExc_BufferError,
			"the array is read-only, which only DLPack 1.0 and later can say: ask with "
			"max_version=(1, 0), or copy it");
		return -1;
	}
	if (!q->copy && check_strides(self) < 0)
		return -1;
	if (take_inner(t, self, &d) < 0 || (q->copy && make_copy(t, self, &d) < 0))
		return -1;
	if (q->copy || q->as_host) {
		d.device_type = DLPACK_CPU;
		d.device_id = 0;
	}
	if (!q->copy)
		enter_buffer(t, self);
	if (q->legacy)
		t->legacy = (struct dlpack_legacy){ .tensor = d,
						    .manager_ctx = t,
						    .deleter = on_delete_legacy };
	else
		t->versioned = (struct dlpack_versioned){ .major = DLPACK_MAJOR,
							  .minor = DLPACK_MINOR,
							  .manager_ctx = t,
							  .deleter = on_delete_versioned,
							  .flags = flags,
							  .tensor = d };
	return 0;
}

static PyObject *make_capsule(struct array *self, const struct request *q)
{
	struct tensor *t = calloc(1, sizeof(*t));
	PyObject *capsule = NULL;

	if (!t)
		return PyErr_NoMemory();
	if (make(t, self, q) == 0)
		capsule = q->legacy ? PyCapsule_New(&t->legacy, LEGACY, on_capsule_gone)
				    : PyCapsule_New(&t->versioned, VERSIONED, on_capsule_gone);
	if (!capsule)
		tensor_drop(t);
	return capsule;
}

/* ---- what was asked for ---- */

/* max_version: None, or (major, minor). */
static int legacy_from(PyObject *max_version, bool *ret)
{
	long major;

	*ret = true;
	if (max_version == Py_None)
		return 0;
	if (!PyTuple_Check(max_version) || PyTuple_Size(max_version) != 2) {
		PyErr_SetString(PyExc_TypeError, "max_version is (major, minor) or None");
		return -1;
	}
	major = PyLong_AsLong(PyTuple_GetItem(max_version, 0));
	if (major == -1 && PyErr_Occurred())
		return -1;
	*ret = major < 1;
	return 0;
}

/* A consumer's stream, and what the array has to do for it: copies that were queued here come first
 * on it. The host has no stream, and waits, for pinned memory too, which a consumer may well name a
 * stream for; -1 says that the consumer sees to it. */
static int order(struct array *self, PyObject *stream, int device)
{
	_cleanup_(drop_object) PyObject *number = NULL;
	long long n = device == DLPACK_CUDA ? 1 : 0;

	if (stream != Py_None) {
		number = PyNumber_Index(stream);
		n = number ? PyLong_AsLongLong(number) : 0;
		if (PyErr_Occurred())
			return -1;
	}
	if (stream != Py_None && device == DLPACK_CPU && n != -1) {
		PyErr_SetString(PyExc_ValueError, "memory of the host has no stream: stream=None");
		return -1;
	}
	if (stream != Py_None && (n == 0 || n < -1)) {
		PyErr_SetString(
			PyExc_ValueError,
			"stream is None, -1, 1 (the legacy default one), 2 (each thread's default "
			"one) or a CUstream; 0 says nothing");
		return -1;
	}
	if (n == -1)
		return 0;
	/* No CUstream is -1: the host waits for any. */
	return order_wait(&self->buffer->order, (void *)(intptr_t)(device == DLPACK_CUDA ? n : -1));
}

/* dl_device and copy, against where the array is. */
static int device_from(PyObject *dl_device, PyObject *copy, int type, int id, struct request *ret)
{
	int wanted_type = type, wanted_id = id;
	int must = copy == Py_None ? -1 : PyObject_IsTrue(copy);

	if (PyErr_Occurred())
		return -1;
	if (dl_device != Py_None &&
	    (!PyTuple_Check(dl_device) ||
	     !PyArg_ParseTuple(dl_device, "ii", &wanted_type, &wanted_id))) {
		PyErr_SetString(PyExc_TypeError, "dl_device is (type, id) or None");
		return -1;
	}
	if (wanted_type == type && wanted_id == id) {
		ret->copy = must == 1;
	} else if (wanted_type == DLPACK_CPU) {
		/* The CPU reaches pinned memory as it is. */
		ret->as_host = type == DLPACK_CUDA_HOST && must != 1;
		ret->copy = !ret->as_host;
	} else {
		PyErr_Format(PyExc_BufferError,
			     "the array is on DLPack's device (%d, %d) and can be given there or "
			     "copied to "
			     "the host, (1, 0), not on (%d, %d)",
			     type, id, wanted_type, wanted_id);
		return -1;
	}
	if (ret->copy && must == 0) {
		PyErr_SetString(PyExc_BufferError,
				"the array is on a GPU: for the host it must be copied");
		return -1;
	}
	if (ret->copy && wanted_type == DLPACK_CUDA) {
		PyErr_SetString(PyExc_BufferError, "a copy on the GPU is the consumer's to make: "
						   "take the array with copy=None");
		return -1;
	}
	return 0;
}

PyObject *dlpack_export(PyObject *o, PyObject *args, PyObject *kwargs)
{
	static const char *const words[] = { "stream", "max_version", "dl_device", "copy", NULL };
	PyObject *stream = Py_None, *max_version = Py_None, *dl_device = Py_None, *copy = Py_None;
	struct array *self = (struct array *)o;
	struct request q = { 0 };
	int type, id;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", (char **)words, &stream,
					 &max_version, &dl_device, &copy) ||
	    !array_is_open(self))
		return NULL;
	gpushm_array_dlpack_device(self->array, &type, &id);
	if (legacy_from(max_version, &q.legacy) < 0 || order(self, stream, type) < 0 ||
	    device_from(dl_device, copy, type, id, &q) < 0)
		return NULL;
	/* Once more: order() has let other threads run. */
	return array_is_open(self) ? make_capsule(self, &q) : NULL;
}

PyObject *dlpack_device(PyObject *o, PyObject *unused)
{
	struct array *self = (struct array *)o;
	int type, id;

	if (!array_is_open(self))
		return NULL;
	gpushm_array_dlpack_device(self->array, &type, &id);
	return Py_BuildValue("ii", type, id);
}
