/* SPDX-License-Identifier: MIT
 *
 * Arrays that other libraries use without a copy: DLPack's Python side (data-apis.org/array-api,
 * dlpack's python_spec), and what the package's CUDA Array Interface asks for.
 *
 * libgpushm makes a DLPack tensor, and this file wraps it: the wrapper is counted in its Buffer and
 * keeps the Buffer alive. A tensor that was copied to the host owns its memory and is not counted.
 * A consumer may call the deleter from any thread, with or without the GIL.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "proto/dlpack_abi.h"
#include "proto/words.h"

#define LEGACY "dltensor"
#define IS_COPIED (1u << 1) /* DLPACK_FLAG_BITMASK_IS_COPIED */

struct request {
	bool legacy;
	bool copy;    /* to the host */
	bool as_host; /* pinned memory, as memory of the CPU */
};

struct tensor {
	union {
		struct dlpack_versioned versioned;
		struct dlpack_legacy legacy;
	};
	struct dlpack_versioned *inner; /* libgpushm's tensor; owned; NULL: a copy */
	struct buffer *buffer;		/* a reference; it counts the tensor; NULL: a copy */
	PyObject *frame;		/* as array::frame */
	bool writable;			/* counted as writable */
	void *copy;			/* memory of the host; owned; NULL: no copy */
	bool *ret_gone;			/* becomes true when the consumer deletes it; or NULL */
	int64_t dims[];			/* of a copy: shape, strides; else `inner` has them */
};

/* Without the GIL. */
static void tensor_free(struct tensor *t)
{
	if (t->inner)
		t->inner->deleter(t->inner);
	free(t->copy);
	if (t->ret_gone)
		*t->ret_gone = true;
	free(t);
}

/* With the GIL. */
static void tensor_drop(struct tensor *t)
{
	struct buffer *b = take_ptr(t->buffer);
	PyObject *frame = take_ptr(t->frame);
	bool writable = t->writable;

	/* Before buffer_settle(): libgpushm does not close a buffer that has tensors. */
	tensor_free(t);
	if (!b)
		return;
	b->tensors--;
	b->writable_tensors -= writable;
	buffer_settle(b);
	Py_XDECREF(frame);
	Py_DECREF((PyObject *)b);
}

/* A consumer calls this, from any thread. While Python shuts down, only its main thread gets the
 * GIL: then the buffer is left to the end of the process. */
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

/* The destructor of a capsule. A consumer that took the tensor has renamed the capsule. */
static void on_capsule_gone(PyObject *capsule)
{
	void *p;

	if (PyCapsule_IsValid(capsule, EXCHANGE_CAPSULE)) {
		p = PyCapsule_GetPointer(capsule, EXCHANGE_CAPSULE);
		tensor_drop(container_of(p, struct tensor, versioned));
	} else if (PyCapsule_IsValid(capsule, LEGACY)) {
		p = PyCapsule_GetPointer(capsule, LEGACY);
		tensor_drop(container_of(p, struct tensor, legacy));
	}
}

/* ---- making a tensor ---- */

static struct tensor *tensor_new(const struct array *self, bool copy)
{
	size_t dims = copy ? 2 * (size_t)gpushm_array_ndim(self->array) : 0;
	struct tensor *t = calloc(1, sizeof(*t) + dims * sizeof(t->dims[0]));

	return t ? t : (void *)PyErr_NoMemory();
}

/* Takes libgpushm's tensor. */
static int take_inner(struct tensor *t, const struct array *self, struct dlpack_tensor *ret)
{
	void *inner;
	int r = gpushm_array_to_dlpack(self->array, &inner);

	if (r == -ENOTSUP)
		PyErr_SetString(PyExc_BufferError, gpushm_error());
	if (error_result(r) < 0)
		return -1;
	t->inner = inner;
	*ret = t->inner->tensor;
	return 0;
}

/* Replaces the tensor's memory by a copy on the host, in C order. */
static int make_copy(struct tensor *t, struct array *self, struct dlpack_tensor *d)
{
	uint64_t bytes = gpushm_array_nbytes(self->array);
	int64_t stride = 1;
	int r;

	memcpy(t->dims, d->shape, (size_t)d->ndim * sizeof(t->dims[0]));
	d->shape = t->dims;
	d->strides = t->dims + d->ndim;
	t->inner->deleter(t->inner);
	t->inner = NULL;
	t->copy = malloc(bytes ? bytes : 1);
	if (!t->copy) {
		PyErr_NoMemory();
		return -1;
	}
	array_hold(self);
	WITHOUT_GIL(r = gpushm_copy_to_host(self->array, t->copy, NULL));
	r = error_result(r);
	array_release(self);
	for (int i = d->ndim - 1; i >= 0; i--) {
		d->strides[i] = stride;
		stride = (int64_t)((uint64_t)stride * (uint64_t)d->shape[i]);
	}
	d->data = bytes ? t->copy : NULL;
	return r;
}

/* From here on the buffer counts the tensor. */
static void enter_buffer(struct tensor *t, struct array *self)
{
	t->buffer = (struct buffer *)Py_NewRef((PyObject *)self->buffer);
	t->frame = Py_XNewRef(self->frame);
	t->writable = array_is_writable(self);
	t->buffer->tensors++;
	t->buffer->writable_tensors += t->writable;
}

/* PyTorch ends the process over a negative stride (std::terminate), and other consumers overlook
 * it. The consumer is not known here. */
static int check_strides(const struct array *self)
{
	const int64_t *shape = gpushm_array_shape(self->array);
	const int64_t *strides = gpushm_array_strides(self->array);

	for (int i = 0; i < gpushm_array_ndim(self->array); i++) {
		if (strides[i] >= 0 || shape[i] < 2)
			continue;
		return error_python(
			PyExc_BufferError,
			"the array has a negative stride, which consumers of DLPack do not "
			"know: numpy() or cupy.asarray() takes it, or copy it");
	}
	return 0;
}

/* JAX asks without max_version, and its user cannot change that. It takes a numpy.ndarray that is
 * read-only, and shares its memory. */
static int refuse_legacy(const struct array *self)
{
	bool on_host = gpushm_buffer_host_ptr(self->buffer->buffer);

	return error_python(PyExc_BufferError,
			    "the array is read-only, which only DLPack 1.0 and later can say: ask "
			    "with max_version=(1, 0), or copy it. JAX takes %s",
			    on_host ? "numpy.asarray(array) by jax.numpy.asarray(), without a copy"
				    : "array.copy_to_host() by jax.numpy.asarray()");
}

static int make(struct tensor *t, struct array *self, const struct request *q)
{
	uint64_t flags = q->copy ? IS_COPIED : array_is_writable(self) ? 0 : DLPACK_READ_ONLY;
	struct dlpack_tensor d;

	if (q->legacy && flags == DLPACK_READ_ONLY)
		return refuse_legacy(self);
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
	struct tensor *t = tensor_new(self, q->copy);
	PyObject *capsule = NULL;

	if (!t)
		return NULL;
	if (make(t, self, q) == 0)
		capsule = q->legacy
				  ? PyCapsule_New(&t->legacy, LEGACY, on_capsule_gone)
				  : PyCapsule_New(&t->versioned, EXCHANGE_CAPSULE, on_capsule_gone);
	if (!capsule)
		tensor_drop(t);
	return capsule;
}

struct dlpack_versioned *exchange_tensor(struct array *self, bool *ret_gone)
{
	struct tensor *t = tensor_new(self, false);
	struct request q = { 0 };
	int type, id;

	if (!t)
		return NULL;
	gpushm_array_dlpack_device(self->array, &type, &id);
	q.as_host = type == DLPACK_CUDA_HOST; /* PyTorch does not take it as anything else */
	if (make(t, self, &q) < 0) {
		tensor_drop(t);
		return NULL;
	}
	*ret_gone = false;
	t->ret_gone = ret_gone;
	return &t->versioned;
}

void exchange_taken(struct dlpack_versioned *v)
{
	container_of(v, struct tensor, versioned)->ret_gone = NULL;
}

/* ---- DLPack's arguments ---- */

/* max_version: None, or (major, minor). */
static int legacy_from(PyObject *max_version, bool *ret)
{
	long major;

	*ret = true;
	if (max_version == Py_None)
		return 0;
	if (!PyTuple_Check(max_version) || PyTuple_Size(max_version) != 2)
		return error_python(PyExc_TypeError, "max_version is (major, minor) or None");
	major = PyLong_AsLong(PyTuple_GetItem(max_version, 0));
	if (major == -1 && PyErr_Occurred())
		return -1;
	*ret = major < 1;
	return 0;
}

/* Orders copies that were queued by this process before the consumer's stream. A consumer without a
 * stream, on the host, waits for them. For pinned memory a consumer may name a stream, but this
 * waits, too. -1 means that the consumer orders the work itself. */
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
	if (stream != Py_None && device == DLPACK_CPU && n != -1)
		return error_python(PyExc_ValueError,
				    "memory of the host has no stream: stream=None");
	if (stream != Py_None && (n == 0 || n < -1))
		return error_python(
			PyExc_ValueError,
			"stream is None, -1, 1 (the legacy default one), 2 (each thread's default "
			"one) or a CUstream; 0 says nothing");
	if (n == -1)
		return 0;
	/* No CUstream is -1: the host waits for all of them. */
	return order_wait(array_order(self), (void *)(intptr_t)(device == DLPACK_CUDA ? n : -1));
}

/* Compares dl_device and copy with the place of the array. */
static int device_from(PyObject *dl_device, PyObject *copy, int type, int id, struct request *ret)
{
	int wanted_type = type, wanted_id = id;
	int must = copy == Py_None ? -1 : PyObject_IsTrue(copy);

	if (PyErr_Occurred())
		return -1;
	if (dl_device != Py_None && (!PyTuple_Check(dl_device) ||
				     !PyArg_ParseTuple(dl_device, "ii", &wanted_type, &wanted_id)))
		return error_python(PyExc_TypeError, "dl_device is (type, id) or None");
	if (wanted_type == type && wanted_id == id) {
		ret->copy = must == 1;
	} else if (wanted_type == DLPACK_CPU) {
		/* The CPU can use pinned memory without a copy. */
		ret->as_host = type == DLPACK_CUDA_HOST && must != 1;
		ret->copy = !ret->as_host;
	} else {
		return error_python(
			PyExc_BufferError,
			"the array is on DLPack's device (%d, %d) and can be given there or "
			"copied to the host, (1, 0), not on (%d, %d)",
			type, id, wanted_type, wanted_id);
	}
	if (ret->copy && must == 0)
		return error_python(PyExc_BufferError,
				    "the array is on a GPU: for the host it must be copied");
	if (ret->copy && wanted_type == DLPACK_CUDA)
		return error_python(PyExc_BufferError,
				    "a copy on the GPU is the consumer's to make: "
				    "take the array with copy=None");
	return 0;
}

/* A constant, which the process keeps. */
static PyObject *constant(PyObject **kept, const char *format, const char *one, const char *two)
{
	if (!*kept)
		*kept = Py_BuildValue(format, one, two);
	return *kept;
}

/* Whether the libraries that are here have got their warnings for the kind of the buffer's pool.
 * The question takes a microsecond in Python, which is as much as the rest of a tensor. */
static bool nothing_to_warn_of(const struct array *self)
{
	static PyObject *attribute, *cupy, *torch_said[KIND_END], *cupy_said[KIND_END];
	unsigned kind = gpushm_buffer_kind(self->buffer->buffer);
	PyObject *name = constant(&attribute, "s", "_said", NULL),
		 *module = constant(&cupy, "s", "cupy", NULL),
		 *torch_key = constant(&torch_said[kind], "(ss)", "PyTorch", kind_word(kind)),
		 *cupy_key = constant(&cupy_said[kind], "(ss)", "CuPy", kind_word(kind));
	_cleanup_(drop_object) PyObject *said =
		name ? PyObject_GetAttr(types.libraries_module, name) : NULL;
	bool r = said && module && torch_key && cupy_key && PySet_Contains(said, torch_key) == 1 &&
		 (!PyDict_GetItemWithError(PyImport_GetModuleDict(), module) ||
		  PySet_Contains(said, cupy_key) == 1);

	PyErr_Clear();
	return r;
}

/* Some consumers ignore DLPack's flag. */
static int warn_read_only(struct array *self, PyObject *kwargs)
{
	if (nothing_to_warn_of(self))
		return 0;
	return object_done(object_call(types.libraries_module, "warn_read_only", "(OO)", self,
				       kwargs ? kwargs : Py_None));
}

PyObject *Array_dlpack(PyObject *o, PyObject *args, PyObject *kwargs)
{
	PyObject *stream = Py_None, *max_version = Py_None, *dl_device = Py_None, *copy = Py_None;
	struct array *self = (struct array *)o;
	struct request q = { 0 };
	int type, id;

	if (!args_parse(args, kwargs, Array_dlpack, "|$OOOO:__dlpack__", &stream, &max_version,
			&dl_device, &copy) ||
	    !array_is_open(self) || !buffer_is_mapped(self->buffer))
		return NULL;
	gpushm_array_dlpack_device(self->array, &type, &id);
	if (legacy_from(max_version, &q.legacy) < 0 || order(self, stream, type) < 0 ||
	    device_from(dl_device, copy, type, id, &q) < 0 || !array_is_open(self) ||
	    (!q.copy && !array_is_writable(self) && warn_read_only(self, kwargs) < 0))
		return NULL;
	/* Checked again, because order() and a warning let other threads run. */
	return array_is_open(self) ? make_capsule(self, &q) : NULL;
}

PyObject *Array_dlpack_device(PyObject *o, PyObject *unused)
{
	struct array *self = (struct array *)o;
	int type, id;

	if (!array_is_open(self))
		return NULL;
	gpushm_array_dlpack_device(self->array, &type, &id);
	return Py_BuildValue("ii", type, id);
}

/* ---- another library's tensor ---- */

/* *ret_flags: 0 for DLPack before 1.0. */
static const struct dlpack_tensor *tensor_in(PyObject *capsule, uint64_t *ret_flags)
{
	const struct dlpack_versioned *v;
	const struct dlpack_legacy *l;

	*ret_flags = 0;
	if (!PyCapsule_IsValid(capsule, EXCHANGE_CAPSULE)) {
		l = PyCapsule_GetPointer(capsule, LEGACY);
		return l ? &l->tensor : NULL;
	}
	v = PyCapsule_GetPointer(capsule, EXCHANGE_CAPSULE);
	*ret_flags = v->flags;
	if (v->major == DLPACK_MAJOR)
		return &v->tensor;
	return (void *)PyErr_Format(PyExc_TypeError, "DLPack %u.%u: version %d is known here",
				    v->major, v->minor, DLPACK_MAJOR);
}

bool exchange_in_c_order(const struct dlpack_tensor *t)
{
	int64_t stride = 1;

	for (int i = t->ndim - 1; i >= 0 && t->strides; i--) {
		if (t->shape[i] > 1 && t->strides[i] != stride)
			return false;
		stride = (int64_t)((uint64_t)stride * (uint64_t)t->shape[i]);
	}
	return true;
}

/* bytes: of an element; 0: elements are packed. */
static PyObject *strides_in(const struct dlpack_tensor *t, int64_t bytes)
{
	int64_t strides[GPUSHM_MAX_NDIM];

	if (!t->strides || (bytes == 0 && exchange_in_c_order(t)))
		return Py_NewRef(Py_None);
	if (bytes == 0)
		return PyErr_Format(PyExc_TypeError,
				    "a DLPack tensor of elements narrower than a byte, which are "
				    "packed, must be contiguous");
	for (int i = 0; i < t->ndim; i++)
		strides[i] = t->strides[i] * bytes;
	return shape_tuple(strides, t->ndim);
}

PyObject *module_read_dlpack(PyObject *module, PyObject *capsule)
{
	uint64_t flags, bits;
	const struct dlpack_tensor *t = tensor_in(capsule, &flags);
	struct gpushm_dtype type;
	bool padded;
	char name[32];

	if (!t)
		return NULL;
	type = (struct gpushm_dtype){ .code = t->code, .bits = t->bits, .lanes = t->lanes };
	if (gpushm_dtype_format(type, name, sizeof(name)) < 0)
		return PyErr_Format(PyExc_TypeError, "a DLPack type of code %u, %u bits, %u lanes",
				    t->code, t->bits, t->lanes);
	if (t->ndim > GPUSHM_MAX_NDIM)
		return PyErr_Format(PyExc_TypeError, "a DLPack tensor of %d dimensions", t->ndim);
	bits = gpushm_dtype_bits(type);
	padded = bits % 8 != 0 && flags & EXCHANGE_PADDED;
	return Py_BuildValue("sNNK(ii)O", name, shape_tuple(t->shape, t->ndim),
			     strides_in(t, padded     ? 1
					   : bits % 8 ? 0
						      : (int64_t)(bits / 8)),
			     (unsigned long long)((uintptr_t)t->data + t->byte_offset),
			     t->device_type, t->device_id, padded ? Py_True : Py_False);
}

/* ---- the CUDA Array Interface ---- */

PyObject *Array_typestr(PyObject *o, void *unused)
{
	struct array *self = (struct array *)o;
	char text[32];

	if (!array_is_open(self))
		return NULL;
	if (gpushm_dtype_typestr(gpushm_array_dtype(self->array), text, sizeof(text)) < 0)
		Py_RETURN_NONE;
	return PyUnicode_FromString(text);
}

PyObject *Array_last_stream(PyObject *o, PyObject *unused)
{
	struct array *self = (struct array *)o;
	void *last;

	if (!array_is_open(self) || order_last(array_order(self), &last) < 0)
		return NULL;
	return object_address(last);
}
