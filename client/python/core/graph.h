/* SPDX-License-Identifier: MIT
 *
 * gpushm.types.GraphFrame: the place of a side's frames in a captured CUDA graph.
 */
#pragma once

#include "client/python/core/frame.h"

/* What its frames take over from their side. */
struct graph_side {
	struct side *side;
	PyObject *timeout; /* of next() without one */
	bool fills;	   /* a producer's */
};

/* The method graph(stream, where=0). Everything in `of` is borrowed. */
PyObject *graph_capture(const struct graph_side *of, PyObject *const *args, Py_ssize_t n,
			PyObject *keywords);

extern const struct type_row graph_row;
