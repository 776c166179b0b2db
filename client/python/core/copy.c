/* SPDX-License-Identifier: MIT
 *
 * Copies between arrays and memory of other libraries, by its address: all of them are queued, and
 * waited for once. The package has checked that the types agree, and keeps the memory.
 */
#include "client/python/core/args.h"
#include "client/python/core/array.h"

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

static int carry_out(struct many *m)
{
	const struct order *last = NULL;
	int r;

	WITHOUT_GIL(r = gpushm_copy_many(m->copies, m->n, m->stream.given ? GPUSHM_COPY_ASYNC : 0,
					 m->stream.handle));
	if (r < 0)
		error_raise(r);
	for (size_t i = 0; i < m->n && r == 0; i++) {
		struct array *a = m->ones[i].array;

		if (array_order(a) != last)
			r = array_queued(a, &m->stream);
		last = array_order(a);
	}
	return r;
}

PyObject *copy_many(PyObject *module, PyObject *args)
{
	struct many m = { 0 };
	PyObject *list, *stream;
	int r;

	if (!PyArg_ParseTuple(args, "O!O:_copy_many", &PyList_Type, &list, &stream) ||
	    stream_from(stream, &m.stream) < 0)
		return NULL;
	r = prepare(list, (size_t)PyList_Size(list), &m);
	if (r == 0)
		r = carry_out(&m);
	release_all(&m);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}
