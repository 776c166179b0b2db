/* SPDX-License-Identifier: MIT
 *
 * gpushm.types.Frame: a slot that a producer fills, or a frame that a reader has.
 */
#pragma once

#include "client/python/core/side.h"

struct meta {
	size_t n;
	unsigned char bytes[GPUSHM_META_MAX];
};

struct frame {
	OBJECT_HEAD
	struct side *side; /* a reference */
	struct slot slot;  /* of the side's buffer, until it is published, released or cancelled */
	struct stream on;  /* the CUDA stream that it was taken on, and is finished on */
	PyObject *stream;  /* that stream's object, to keep it; a reference; NULL: none */
	bool filling;	   /* the producer's */
	bool in_graph;	   /* a CUDA graph waits for it, and ends it */
	bool kept;	   /* the reader's loop does not release it */
	uint64_t seq, time_ns, skipped; /* also when it is finished */
	uint32_t index;			/* of its slot */
	struct meta meta;		/* as it came, or as it was encoded */
	PyObject *value;		/* the meta as a dict or bytes; owned; NULL: not decoded */
	PyObject *shapes;		/* a dict: meta_encode(); owned; NULL: none */
};

/* Takes f over. `stream`: the argument that `on` was read from; both NULL: the frame is in a CUDA
 * graph. */
struct frame *pyframe_new(struct side *side, struct gpushm_frame *f, const struct stream *on,
			  PyObject *stream);

/* Releases a reader's frame on its stream; one that is in a CUDA graph on the host, because nobody
 * says that the graph was launched. Raises where its contents were not good. */
int frame_release(struct frame *self);
