/* SPDX-License-Identifier: MIT
 *
 * What module.c puts together: functions of the module, and types.
 */
#pragma once

#include "client/python/core/object.h"

/* What a Buffer and an Array have in common. */
extern PyTypeObject *of_buffer_type;
extern struct type_row of_buffer_row, call_row, watch_row, buffer_row, array_row, frame_row,
	graph_row, producer_row, reader_row;

/* Opens libgpushm-load, if it is there. */
void load_offer(void);
/* What gpushm._load calls of its functions' names. */
PyObject *module_load_key(PyObject *module, PyObject *sources);
PyObject *module_pull_wait(PyObject *module, PyObject *args);
PyObject *module_save(PyObject *module, PyObject *args);
PyObject *module_verify(PyObject *module, PyObject *args);

/* _handle_bytes(thing): the handle of an Array or a Buffer. _read_handle(bytes): (name, id, access,
 * socket or None, size, the owner's uid, layout); the layout is None for a whole buffer, or (name
 * of the array that has the fields or None, dtype, descr or None, shape, strides or None, offset).
 * _pin(address, nbytes, mapped): the address for GPUs or None; of 0 bytes: unpins. */
PyObject *module_handle_bytes(PyObject *module, PyObject *o);
PyObject *module_read_handle(PyObject *module, PyObject *o);
PyObject *module_pin(PyObject *module, PyObject *args);

/* Of arena.c, for gpushm.torch.memory(): the allocator that PyTorch calls. */
PyObject *module_arena_new(PyObject *module, PyObject *args); /* (address, bytes, device) -> id */
PyObject *module_arena_use(PyObject *module, PyObject *id); /* 0: none -> the thread's one before */
PyObject *module_arena_stat(PyObject *module,
			    PyObject *id); /* (used, allocs, frees, refused, asked) */
PyObject *module_arena_drop(PyObject *module, PyObject *id);
