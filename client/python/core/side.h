/* SPDX-License-Identifier: MIT
 *
 * One side of a stream: what gpushm.types.Stream, the producer's, and gpushm.types.Reader have in
 * common. A side has a reference to its buffer, and the buffer owns the stream of libgpushm's,
 * because tensors of frames may outlive the side.
 */
#pragma once

#include "client/python/core/args.h"
#include "client/python/core/buffer.h"

struct side {
	OBJECT_HEAD
	struct buffer *buffer; /* a reference; NULL: closed, or a Reader that has not joined yet */
	struct connection *connection; /* a reference */
	PyObject *name;		       /* a str */
	struct list link;	       /* all sides */
	PyObject *timeout;	       /* for taking a frame, as it was given; a reference */
	unsigned calls;		       /* that run without the GIL, and tasks that wait */
	bool busy;		       /* one of them takes or publishes a frame */
	bool closed;
	bool fills;  /* the producer's */
	int patient; /* a Reader waits for another producer where one died */
};

/* A new side without a buffer. */
void *side_new(PyTypeObject *type, struct connection *c, PyObject *name, PyObject *timeout);

/* Gives it the stream that its connection made or opened. flags: as for buffer_hinted(). Takes s
 * over, and closes it where this fails. */
int side_join(struct side *self, struct gpushm_stream *s, uint32_t flags);

/* The stream of libgpushm's; raises where it is closed, or not joined yet. */
struct gpushm_stream *side_stream(const struct side *self);

/* Around what only one thread at a time may do; raises where another one does it. */
int side_begin(struct side *self);
void side_end(struct side *self);

/* Takes a frame in turns, so that Python handles Ctrl-C in between: gpushm_frame_begin(),
 * gpushm_frame_next() or the like. where: its CUDA stream. A producer's death is returned once; a
 * side that is patient asks again, and waits for another one. Returns 0, -errno, or -EINTR after
 * raising.
 */
typedef int side_take_fn(struct gpushm_stream *s, void *where, uint64_t timeout_ms,
			 struct gpushm_frame **ret);
int side_take(struct side *self, side_take_fn *take, void *where, const struct deadline *d,
	      struct gpushm_frame **ret);

/* Raises what gpushm_frame_begin() or gpushm_frame_next() returned. Returns NULL. */
void *side_raise(int r);

/* tp_traverse, tp_clear and tp_dealloc, and their last part for a type that has more members. */
int side_traverse(PyObject *o, visitproc visit, void *arg);
int side_clear(PyObject *o);
void side_dealloc(PyObject *o);

/* Of the module, and a method in graph.c: core.pyi.in describes them. */
PyObject *module_close_streams(PyObject *module, PyObject *unused);
PyObject *Side_graph(PyObject *side, PyObject *const *args, Py_ssize_t n, PyObject *keywords);

/* The type that both have as their base: close(), stats(), fileno() ... */
extern PyTypeObject *side_type;
extern struct type_row side_row;
