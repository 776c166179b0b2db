/* SPDX-License-Identifier: MIT
 *
 * Functions of the module for gpushm.torch.memory(): the allocator that PyTorch calls.
 */
#pragma once

#include "client/python/core/object.h"

PyObject *arena_new(PyObject *module, PyObject *args);	/* (address, bytes, device) -> id */
PyObject *arena_use(PyObject *module, PyObject *id);	/* 0: none -> the thread's one before */
PyObject *arena_take(PyObject *module, PyObject *args); /* (id, bytes) -> address; None: full */
PyObject *arena_stat(PyObject *module, PyObject *id);	/* (used, allocs, frees, refused, asked) */
PyObject *arena_drop(PyObject *module, PyObject *id);
