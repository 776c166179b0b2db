/* SPDX-License-Identifier: MIT
 *
 * An allocator over a buffer's bytes, for torch.cuda.MemPool: it gives memory away from the start
 * to the end. What is freed is counted and not given away again, so that an address means the same
 * tensor for as long as the buffer exists.
 *
 * PyTorch calls gpushm_torch_alloc() and gpushm_torch_free() by their names, without the GIL and
 * without an argument that says which pool asks. So each thread has a current arena, which the
 * package sets around a section; PyTorch asks for memory in the thread that needs it.
 *
 * An arena does not keep its buffer. It is dropped when PyTorch has freed all that it got from it.
 */
#include "client/python/core/args.h"
#include "client/python/core/module.h"
#include "proto/base/list.h"

#include <pthread.h>

/* PyTorch's blocks begin at multiples of 512 bytes. */
#define ALIGNMENT 512u

struct arena {
	struct list link; /* all */
	uint64_t id;	  /* never used again */
	uintptr_t start;
	uint64_t bytes, used;
	int device;		 /* CUDA ordinal */
	uint64_t allocs, frees;	 /* of PyTorch's */
	uint64_t refused, asked; /* requests that found no space, and the bytes of the last one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list all = { &all, &all }; /* arena::link; under the lock */
static uint64_t last_id;		 /* under the lock */
static __thread uint64_t current;	 /* an id; 0: none */

/* Under the lock. NULL: no arena has that id. */
static struct arena *find(uint64_t id)
{
	struct arena *a;

	list_foreach (a, &all, link)
		if (a->id == id)
			return a;
	return NULL;
}

/* Under the lock. 0: no space. */
static uintptr_t take(struct arena *a, uint64_t bytes)
{
	uint64_t at = (a->used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

	if (at > a->bytes || bytes > a->bytes - at) {
		a->refused++;
		a->asked = bytes;
		return 0;
	}
	a->used = at + bytes;
	return a->start + at;
}

/* ---- what PyTorch calls ---- */

#pragma GCC visibility push(default)
void *gpushm_torch_alloc(ssize_t bytes, int device, void *stream);
void gpushm_torch_free(void *p, ssize_t bytes, int device, void *stream);
#pragma GCC visibility pop

/* NULL: PyTorch raises its OutOfMemoryError. */
void *gpushm_torch_alloc(ssize_t bytes, int device, void *stream)
{
	uintptr_t p = 0;
	struct arena *a;

	pthread_mutex_lock(&lock);
	a = find(current);
	if (a && a->device == device && bytes >= 0)
		p = take(a, (uint64_t)bytes);
	if (p)
		a->allocs++;
	pthread_mutex_unlock(&lock);
	return (void *)p;
}

/* May come from any thread, and after the section. */
void gpushm_torch_free(void *p, ssize_t bytes, int device, void *stream)
{
	struct arena *a;

	pthread_mutex_lock(&lock);
	list_foreach (a, &all, link)
		if ((uintptr_t)p - a->start < a->bytes)
			a->frees++;
	pthread_mutex_unlock(&lock);
}

/* ---- for the package ---- */

PyObject *module_arena_new(PyObject *module, PyObject *args)
{
	unsigned long long start, bytes;
	struct arena *a;
	int device;

	if (!PyArg_ParseTuple(args, "KKi:_arena_new", &start, &bytes, &device))
		return NULL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return PyErr_NoMemory();
	a->start = (uintptr_t)start;
	a->bytes = bytes;
	a->device = device;
	pthread_mutex_lock(&lock);
	a->id = ++last_id;
	list_insert(&all, &a->link);
	pthread_mutex_unlock(&lock);
	return PyLong_FromUnsignedLongLong(a->id);
}

static PyObject *no_arena(unsigned long long id)
{
	return PyErr_Format(PyExc_ValueError, "there is no arena %llu", id);
}

PyObject *module_arena_use(PyObject *module, PyObject *id)
{
	uint64_t before = current, wanted;

	if (!u64_arg(id, &wanted))
		return NULL;
	current = wanted;
	return PyLong_FromUnsignedLongLong(before);
}

PyObject *module_arena_stat(PyObject *module, PyObject *o)
{
	struct arena copy = { 0 }, *a;
	uint64_t id;

	if (!u64_arg(o, &id))
		return NULL;
	pthread_mutex_lock(&lock);
	a = find(id);
	if (a)
		copy = *a;
	pthread_mutex_unlock(&lock);
	if (!a)
		return no_arena(id);
	return Py_BuildValue("KKKKK", (unsigned long long)copy.used,
			     (unsigned long long)copy.allocs, (unsigned long long)copy.frees,
			     (unsigned long long)copy.refused, (unsigned long long)copy.asked);
}

PyObject *module_arena_drop(PyObject *module, PyObject *o)
{
	struct arena *a;
	uint64_t id;

	if (!u64_arg(o, &id))
		return NULL;
	pthread_mutex_lock(&lock);
	a = find(id);
	if (a)
		list_drop(&a->link);
	pthread_mutex_unlock(&lock);
	free(a);
	return a ? Py_NewRef(Py_None) : no_arena(id);
}
