/* SPDX-License-Identifier: MIT
 *
 * What module.c puts together: functions of the module, and types.
 */
#pragma once

#include "client/python/core/object.h"

/* Methods of Connection, and functions of the module: called as those, self is the module. */
PyObject *method_create(PyObject *self, PyObject *args);
PyObject *method_open_or_create(PyObject *self, PyObject *args);
PyObject *method_open(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);
PyObject *method_open_many(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);
PyObject *method_send_open(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);
PyObject *method_query(PyObject *self, PyObject *args);
PyObject *method_send_wait(PyObject *self, PyObject *args);
PyObject *method_watch(PyObject *self, PyObject *args);
PyObject *method_events(PyObject *self, PyObject *args);
PyObject *method_load(PyObject *self, PyObject *args);
PyObject *method_stream(PyObject *self, PyObject *args);
PyObject *method_follow(PyObject *self, PyObject *args);

/* What a Buffer and an Array have in common. */
extern PyTypeObject *of_buffer_type;
extern struct type_row of_buffer_row, call_row, watch_row, buffer_row, array_row, frame_row,
	graph_row, producer_row, reader_row;

/* Opens libgpushm-load, if it is there. */
void load_offer(void);
/* What gpushm._load calls of its functions' names. */
PyObject *load_key(PyObject *module, PyObject *sources);
PyObject *load_pull_wait(PyObject *module, PyObject *args);
PyObject *load_save(PyObject *module, PyObject *args);
PyObject *load_verify(PyObject *module, PyObject *args);

/* _handle_bytes(thing): the handle of an Array or a Buffer. _read_handle(bytes): (name, id, access,
 * socket or None, size, the owner's uid, layout); the layout is None for a whole buffer, or (name
 * of the array that has the fields or None, dtype, descr or None, shape, strides or None, offset).
 * _pin(address, nbytes, mapped): the address for GPUs or None; of 0 bytes: unpins. */
PyObject *handle_make(PyObject *module, PyObject *o);
PyObject *handle_read(PyObject *module, PyObject *o);
PyObject *handle_pin(PyObject *module, PyObject *args);

/* Of arena.c, for gpushm.torch.memory(): the allocator that PyTorch calls. */
PyObject *arena_new(PyObject *module, PyObject *args);	/* (address, bytes, device) -> id */
PyObject *arena_use(PyObject *module, PyObject *id);	/* 0: none -> the thread's one before */
PyObject *arena_take(PyObject *module, PyObject *args); /* (id, bytes) -> address; None: full */
PyObject *arena_stat(PyObject *module, PyObject *id);	/* (used, allocs, frees, refused, asked) */
PyObject *arena_drop(PyObject *module, PyObject *id);
