/* SPDX-License-Identifier: MIT
 *
 * gpushm.Buffer: a buffer as this process has it open, and a mapping of names to its arrays. It is
 * closed when nothing uses it: arrays keep it by a reference, and so do tensors; how many there
 * are, and which, is counted here, so that a close() can name them.
 */
#ifndef GPUSHM_PYTHON_BUFFER_H
#define GPUSHM_PYTHON_BUFFER_H

#include "client/python/core/connection.h"
#include "client/python/core/object.h"
#include "client/python/core/order.h"

struct array;

struct buffer {
	PyObject_HEAD
	PyObject *weakrefs;
	struct gpushm_buffer *buffer;  /* owned; NULL: closed */
	struct connection *connection; /* a reference */
	PyObject *name; /* a str; it stays when the buffer is closed, to be unlinked */
	struct buffer *next, **place; /* of all that are open; place NULL: it is not among them */
	struct array *arrays;	      /* array::next; those that are not closed; borrowed */
	struct array *owner;	      /* of them: its close() is the buffer's; NULL */
	unsigned tensors;	      /* DLPack's that are alive */
	unsigned writable_tensors;    /* of them */
	unsigned calls;		      /* that run without the GIL and use the buffer */
	unsigned writing;	      /* of them: copies into it */
	unsigned sealing;	      /* of them: while there are, nobody gets it to write to */
	bool left;		      /* nobody but those holds it any more: buffer_leave() */
	struct order order;	      /* copies that nobody has waited for */
};

/* Takes *b over, closing it where this fails. name: the str that it was asked for by. NULL:
 * raised. */
struct buffer *buffer_new(struct connection *c, struct gpushm_buffer *b, PyObject *name);

/* Whether it is open for whoever has it, and not only for its arrays; else raises. */
bool buffer_is_open(const struct buffer *self);

/* The array of that name, or, for NULL, at that position: as gpushm_array_get(), of an open one. */
int buffer_array(struct buffer *self, const char *name, size_t at, struct gpushm_array **ret);

/* Closes it. With arrays other than the owner, tensors, memoryviews or calls: raises InUse, which
 * names them, and nothing has happened. 0 or -1. */
int buffer_close(struct buffer *self);

/* The end of a with block: closes the views and the buffer. Tensors and memory that others have
 * keep it, and the last of them closes it; then there is a ResourceWarning that names them. 0 or
 * -1. */
int buffer_leave(struct buffer *self);

/* Whoever has stopped using the buffer says so; the last one after buffer_leave() closes it. Raises
 * nothing. */
void buffer_settle(struct buffer *self);

/* tp_dealloc. */
void buffer_dealloc(PyObject *o);

/* Publishes it; `state` as Python names it. Raises where a writable view would outlive the sealing.
 * 0 or -1. */
int buffer_publish(struct buffer *self, const char *state);

/* A copy was queued on that stream, or done. 0; -1: raised. */
int buffer_queued(struct buffer *self, const struct stream *stream);

/* A list of all that this process has open; NULL: raised. */
PyObject *buffer_list(void);

/* "filling", "sealed", "shared"; "host", "pinned", "vmm", "mempool", "unknown". */
const char *state_word(enum gpushm_state state);
const char *kind_word(enum gpushm_kind kind);

#endif
