/* SPDX-License-Identifier: MIT
 *
 * CUDA streams, from whatever library they come.
 */
#ifndef GPUSHM_PYTHON_STREAM_H
#define GPUSHM_PYTHON_STREAM_H

#include "client/python/core/object.h"

struct stream {
	bool given;	  /* else: whoever asked wants it done on return */
	void *handle;	  /* a CUstream; NULL and 1: the legacy default one */
	bool lasts;	  /* a default one, or its object's */
	PyObject *object; /* borrowed; NULL: a number was given */
};

/* None and 0: not given. An int: a CUstream; 1 and 2 are the driver's names for the legacy default
 * stream and the per-thread one. Else an object with __cuda_stream__ (cuda.core's protocol), or
 * CuPy's .ptr, torch's .cuda_stream, Numba's .handle. 0; -1: raised. */
int stream_from(PyObject *o, struct stream *ret);

/* For the package's modules. */
extern PyMethodDef stream_functions[];

#endif
