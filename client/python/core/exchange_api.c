/* SPDX-License-Identifier: MIT
 *
 * Many tensors at once, for a library that has DLPack's exchange API: functions in C that make and
 * read its tensors (DLPack 1.3; PyTorch has them since 2.10). A tensor takes less than a
 * microsecond this way, and ten times that by __dlpack__() and from_dlpack().
 *
 * These functions order no streams. _tensors() does it once for all, and the package does it for
 * the copies.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"
#include "proto/dlpack_abi.h"

#define CUDA_MANAGED 13 /* kDLCUDAManaged */
#define COMPLEX 5	/* kDLComplex */

static const struct dlpack_exchange_api *api_of(PyObject *capsule)
{
	const struct dlpack_exchange_api *api =
		PyCapsule_GetPointer(capsule, "dlpack_exchange_api");

	while (api && api->major != DLPACK_MAJOR)
		api = api->previous;
	if (api || PyErr_Occurred())
		return api;
	return (void *)PyErr_Format(PyExc_NotImplementedError,
				    "the library has no exchange API of DLPack %d", DLPACK_MAJOR);
}

/* ---- from an Array to a tensor ---- */

/* Where the library refuses the tensor before it owns it, nobody else deletes it. */
static PyObject *give(const struct dlpack_exchange_api *api, struct array *a)
{
	struct dlpack_versioned *v;
	struct raised before;
	void *made = NULL;
	bool gone;

	v = exchange_tensor(a, &gone);
	if (!v)
		return NULL;
	if (api->to_object(v, &made) == 0) {
		exchange_taken(v);
		return made;
	}
	if (!PyErr_Occurred())
		error_python(PyExc_BufferError, "the library refuses the tensor");
	/* The library may run Python's code: the exception stays. */
	before = error_take();
	if (!gone)
		v->deleter(v);
	error_put_back(&before);
	return NULL;
}

/* The library's current stream comes behind the copies that this process has queued. */
static int order(struct array *a, const struct dlpack_exchange_api *api)
{
	void *stream = NULL;
	int type, id;

	gpushm_array_dlpack_device(a->array, &type, &id);
	if (type != DLPACK_CUDA)
		return order_wait(array_order(a), (void *)(intptr_t)-1);
	if (api->current_stream(type, id, &stream) < 0)
		return -1;
	return order_wait(array_order(a), stream ? stream : (void *)1);
}

static PyObject *tensor_of(struct buffer *b, PyObject *name, const struct dlpack_exchange_api *api,
			   bool *ordered)
{
	_cleanup_(drop_object) PyObject *o = NULL;
	struct gpushm_array *inner;
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	int r = text ? buffer_array(b, text, 0, &inner) : -1;

	if (!text)
		return NULL;
	if (r == -ENOENT) {
		PyErr_SetObject(PyExc_KeyError, name);
		return NULL;
	}
	o = array_new(b, r, &inner);
	if (!o || (!*ordered && order((struct array *)o, api) < 0) ||
	    !array_is_open((struct array *)o))
		return NULL;
	*ordered = true;
	return give(api, (struct array *)o);
}

PyObject *module_tensors(PyObject *module, PyObject *args)
{
	const struct dlpack_exchange_api *api;
	PyObject *buffer, *names, *capsule, *list;
	bool ordered = false;

	if (!PyArg_ParseTuple(args, "O!O!O:_tensors", types.buffer, &buffer, &PyList_Type, &names,
			      &capsule))
		return NULL;
	api = api_of(capsule);
	list = api ? PyList_New(0) : NULL;
	/* The library can run Python's code, which may change the names or close the buffer. */
	for (Py_ssize_t i = 0; list && i < PyList_Size(names); i++) {
		_cleanup_(drop_object) PyObject *name = Py_NewRef(PyList_GetItem(names, i));

		object_append(&list,
			      buffer_is_open((struct buffer *)buffer)
				      ? tensor_of((struct buffer *)buffer, name, api, &ordered)
				      : NULL);
	}
	return list;
}

/* ---- from a tensor to a copy ---- */

/* The library may run Python's code: an exception that is on its way stays. */
static void on_capsule_gone(PyObject *capsule)
{
	KEEP_RAISED;
	struct dlpack_versioned *v = PyCapsule_GetPointer(capsule, EXCHANGE_CAPSULE);

	if (v && v->deleter)
		v->deleter(v);
}

/* A tensor of PyTorch's may be the conjugate or the negative of what is in memory. *name: the
 * method, once it is a str. */
static bool says(PyObject *tensor, const char *method, PyObject **name)
{
	_cleanup_(drop_object) PyObject *found = NULL, *said = NULL;
	int r;

	if (!*name)
		*name = PyUnicode_InternFromString(method);
	found = *name ? PyObject_GetAttr(tensor, *name) : NULL;
	said = found ? PyObject_CallNoArgs(found) : NULL;
	r = said ? PyObject_IsTrue(said) : 0;
	PyErr_Clear();
	return r != 0;
}

/* Whether the memory has exactly the array's elements, in C order. */
static bool is_plain(const struct array *a, const struct dlpack_versioned *v, PyObject *tensor)
{
	const struct dlpack_tensor *t = &v->tensor;
	struct gpushm_dtype own = gpushm_array_dtype(a->array);
	static PyObject *is_neg, *is_conj; /* kept until the process ends */

	if (t->code != own.code || t->bits != own.bits || t->lanes != own.lanes ||
	    v->flags & EXCHANGE_PADDED || !shape_is(a->array, t->ndim, t->shape))
		return false;
	return exchange_in_c_order(t) && !says(tensor, "is_neg", &is_neg) &&
	       !(t->code == COMPLEX && says(tensor, "is_conj", &is_conj));
}

static bool find_device(const struct dlpack_tensor *t, int *ret)
{
	bool on_gpu = t->device_type == DLPACK_CUDA || t->device_type == CUDA_MANAGED;

	*ret = on_gpu ? t->device_id : -1;
	return on_gpu || t->device_type == DLPACK_CPU || t->device_type == DLPACK_CUDA_HOST;
}

PyObject *module_copy_of(PyObject *module, PyObject *args)
{
	_cleanup_(drop_object) PyObject *owner = NULL;
	const struct dlpack_exchange_api *api;
	PyObject *array, *tensor, *capsule;
	struct dlpack_versioned *v = NULL;
	int device;

	if (!PyArg_ParseTuple(args, "O!OO:_copy_of", types.array, &array, &tensor, &capsule))
		return NULL;
	api = api_of(capsule);
	if (!api)
		return NULL;
	/* __dlpack__() says why there is no tensor, if that fails, too. */
	if (api->from_object(tensor, &v) < 0) {
		PyErr_Clear();
		Py_RETURN_NONE;
	}
	owner = PyCapsule_New(v, EXCHANGE_CAPSULE, on_capsule_gone);
	if (!owner) {
		v->deleter(v);
		return NULL;
	}
	if (!array_is_open((struct array *)array))
		return NULL;
	if (v->major != DLPACK_MAJOR || !find_device(&v->tensor, &device) ||
	    !is_plain((struct array *)array, v, tensor))
		Py_RETURN_NONE;
	return Py_BuildValue("OKOiO", array,
			     (unsigned long long)((uintptr_t)v->tensor.data +
						  v->tensor.byte_offset),
			     Py_None, device, owner);
}
