/* SPDX-License-Identifier: MIT
 *
 * CUDA streams, of any library, and the order of copies on them: a buffer remembers the streams on
 * which copies were queued, so that a consumer that gets the memory is ordered behind them.
 */
#pragma once

#include "client/python/core/object.h"

#include "client/gpushm_stream.h"

struct stream {
	bool given;	  /* false: the caller wants the work done on return */
	void *handle;	  /* a CUstream; NULL and 1: the legacy default stream */
	bool lasts;	  /* a default stream, or one that `object` keeps alive */
	PyObject *object; /* borrowed; NULL: a number was given */
};

/* None and 0: no stream is given. An int is a CUstream; 1 and 2 are the driver's names for the
 * legacy default stream and the per-thread one. Otherwise an object that has __cuda_stream__ (the
 * protocol of cuda.core), or CuPy's .ptr, torch's .cuda_stream, Numba's .handle. */
int stream_from(PyObject *o, struct stream *ret);

/* For functions of gpushm_stream.h. */
static inline void *stream_where(const struct stream *s)
{
	return s->given ? s->handle : GPUSHM_ON_HOST;
}

/* A function of the module, which core.pyi.in describes. */
PyObject *module_stream(PyObject *module, PyObject *o);

struct order {
	/* A dict from (CUstream as an int, thread) to (the stream's object or None,); the stream of
	 * the last copy is its last entry. Owned; NULL: empty. */
	PyObject *streams;
};

void order_done(struct order *o);

/* Remembers a copy that was queued on a stream that lasts. */
int order_add(struct order *o, const struct stream *s);

/* Waits for all streams except that CUstream, on which the consumer works. Other threads run
 * meanwhile. */
int order_wait(struct order *o, const void *but);

/* Waits for all streams except the last one, and returns that one: 1, not NULL, is the legacy
 * default stream; NULL: no stream. */
int order_last(struct order *o, void **ret);
