/* SPDX-License-Identifier: MIT
 *
 * The methods of gpushm.Array that have a file of their own: view.c, memory.c and exchange.c; and
 * exchange_api.c, for libraries that have DLPack's exchange API. array_type.c makes the type of
 * them. Their arguments can run Python code that closes the array or lets other threads run. So
 * each method reads its arguments first, and then checks the array.
 */
#pragma once

#include "client/python/core/buffer.h"

/* ---- methods and functions of the module, which core.pyi.in describes ---- */

PyObject *Array_reshape(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *Array_ravel(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *Array_transpose(PyObject *o, PyObject *args);
PyObject *Array_split(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *Array_view(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *Array_T(PyObject *o, void *unused);
PyObject *Array_span(PyObject *o, PyObject *unused);
PyObject *Array_read_into(PyObject *o, PyObject *args);
PyObject *Array_write_from(PyObject *o, PyObject *args);
PyObject *Array_dlpack(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *Array_dlpack_device(PyObject *o, PyObject *unused);
PyObject *Array_typestr(PyObject *o, void *unused);
PyObject *Array_last_stream(PyObject *o, PyObject *unused);
PyObject *module_copy_many(PyObject *module, PyObject *args);
PyObject *module_tensors(PyObject *module, PyObject *args);
PyObject *module_copy_of(PyObject *module, PyObject *args);
PyObject *module_read_dlpack(PyObject *module, PyObject *capsule);

/* ---- view.c ---- */

/* mp_subscript: integers, slices, Ellipsis and None, alone or in a tuple; always a view. */
PyObject *view_subscript(PyObject *o, PyObject *key);

/* An array over the bytes of an open buffer; its layout need not be described there. strides None:
 * C order. */
PyObject *view_over(struct buffer *b, PyObject *dtype, PyObject *shape, PyObject *strides,
		    uint64_t offset);

/* ---- open.c ---- */

/* "r", "r+" or "c". *ret_flags: copy-on-write is an option of the open, which is one for reading.
 */
int open_access_from(const char *word, enum gpushm_access *ret, uint32_t *ret_flags);

/* The only array of a buffer, which owns it. Takes b over; NULL is allowed. */
PyObject *open_result(struct buffer *b);

/* ---- memory.c: the array and memory of the host ---- */

/* bf_getbuffer, bf_releasebuffer: Python's buffer protocol, where the CPU reaches the array. */
int memory_get(PyObject *o, Py_buffer *view, int flags);
void memory_release(PyObject *o, Py_buffer *view);

/* ---- exchange.c: DLPack ---- */

#define EXCHANGE_CAPSULE "dltensor_versioned"
#define EXCHANGE_PADDED (1u << 2) /* DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED */

/* A tensor of DLPack's, which the caller deletes or gives away; *ret_gone becomes true when it is
 * deleted, unless exchange_taken() was called before. Orders no stream. */
struct dlpack_versioned;
struct dlpack_versioned *exchange_tensor(struct array *self, bool *ret_gone);
void exchange_taken(struct dlpack_versioned *v);

struct dlpack_tensor;
bool exchange_in_c_order(const struct dlpack_tensor *t);
