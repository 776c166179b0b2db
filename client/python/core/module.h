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

/* Functions of the module, which core.pyi.in describes. */
PyObject *module_load_key(PyObject *module, PyObject *sources);
PyObject *module_pull_wait(PyObject *module, PyObject *args);
PyObject *module_save(PyObject *module, PyObject *args);
PyObject *module_verify(PyObject *module, PyObject *args);
PyObject *module_handle_bytes(PyObject *module, PyObject *o);
PyObject *module_read_handle(PyObject *module, PyObject *o);
PyObject *module_pin(PyObject *module, PyObject *args);
PyObject *module_arena_new(PyObject *module, PyObject *args);
PyObject *module_arena_use(PyObject *module, PyObject *id);
PyObject *module_arena_stat(PyObject *module, PyObject *id);
PyObject *module_arena_drop(PyObject *module, PyObject *id);
