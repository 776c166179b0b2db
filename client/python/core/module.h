/* SPDX-License-Identifier: MIT
 *
 * What module.c puts together: functions of the module, and types. A function of these tables
 * is also a method of Connection; called as a function of the module, its self is the
 * module.
 */
#pragma once

#include "client/python/core/object.h"

extern PyMethodDef create_functions[]; /* create, create_many */
extern PyMethodDef open_functions[];   /* open, open_many */
extern PyMethodDef query_functions[];  /* wait, unlink, clean, flush, ls, stat, pools, status */
extern PyMethodDef events_functions[]; /* _events */
extern PyMethodDef call_functions[];   /* _send_wait */
extern PyMethodDef watch_functions[];  /* watch */
extern PyMethodDef load_functions[];   /* _load */
extern PyMethodDef stream_functions[]; /* stream */
extern PyMethodDef follow_functions[]; /* follow */

/* What a Buffer and an Array have in common. */
extern PyTypeObject *of_buffer_type;
extern const struct type_row of_buffer_row, call_row, watch_row, buffer_row, array_row, frame_row,
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
