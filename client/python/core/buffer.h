/* SPDX-License-Identifier: MIT
 *
 * Buffers and their arrays as objects of Python: made, listed, published, closed. A buffer is
 * closed when nothing uses it. Arrays and tensors keep it alive by a reference; they are also
 * counted here, so that a close() that must fail can name them.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "client/python/core/connection.h"
#include "client/python/core/object.h"
#include "client/python/core/stream.h"
#include "proto/base/list.h"

/* gpushm.Buffer. */
struct buffer {
	OBJECT_HEAD
	struct gpushm_buffer *buffer; /* owned; NULL: closed */
	void *starts[2]; /* its addresses for a GPU and the CPU, also while it is away; NULL */
	struct connection *connection; /* a reference */
	PyObject *name;	     /* a str; a closed buffer still has it, so that it can be unlinked */
	struct list link;    /* all open buffers */
	struct list arrays;  /* array::link: those that are not closed; borrowed */
	struct array *owner; /* the one whose close() closes the buffer; NULL */
	unsigned tensors;    /* DLPack tensors that are alive */
	unsigned writable_tensors; /* of them */
	unsigned calls;		   /* that use the buffer and run without the GIL */
	unsigned suspending;	   /* of them: suspends, after which a buffer that left is closed */
	unsigned writing;	   /* of them: copies into the buffer */
	unsigned sealing;	   /* of them: while one seals the buffer, it is lent read-only */
	bool anonymous;		   /* this process created it, without a name */
	bool scratch;		   /* nobody will miss its contents: they end without a warning */
	bool warned;		   /* that its contents are lost, or an exception said enough */
	PyObject *place; /* where this process created it: place() of gpushm._unpublished; NULL: it
			    did not */
	bool left;	 /* its with block is over, and only its users keep it: buffer_leave() */
	struct order order;	      /* copies that nobody has waited for */
	struct gpushm_stream *stream; /* owned: the buffer is this stream's; NULL: of no stream */
	struct list slots;	      /* slot::link: of a stream, those with a frame of this side */
};

/* The part of a stream's buffer that is a frame now. */
struct slot {
	struct list link;	    /* buffer::slots, the oldest first */
	uint64_t from, to;	    /* bytes from the buffer's start */
	struct gpushm_frame *frame; /* owned; NULL: it is not one any more, and in no list */
	PyObject *owner;	    /* the Frame that has the slot as a member */
	struct order order;	    /* as buffer::order, for the arrays in it */
};

/* gpushm.Array: an array of a buffer, or a view of one. */
struct array {
	OBJECT_HEAD
	struct gpushm_array *array;    /* owned; NULL: closed */
	struct buffer *buffer;	       /* a reference */
	PyObject *frame;	       /* of a stream, in whose slot it is; a reference; or NULL */
	struct list link;	       /* buffer::arrays */
	unsigned memoryviews;	       /* of it that are alive */
	unsigned writable_memoryviews; /* of them */
	unsigned calls;		       /* that use it and run without the GIL */
	char *format;		       /* owned: a record's, for memoryviews; NULL: not asked for */
	bool span;		       /* it stands for memory that NumPy uses */
	bool span_writable;
};

/* ---- buffers ---- */

/* Takes *b over, and closes it where this fails. name: the str that the caller opened it by.
 * stream: taken over, too, if the buffer is a stream's; else NULL. */
struct buffer *pybuffer_new(struct connection *c, struct gpushm_buffer *b, PyObject *name,
			    struct gpushm_stream *stream);

/* Warns if the thread works on another GPU than the one that has the memory, and flags do not have
 * GPUSHM_SET_DEVICE. Takes b over where a filter makes the warning an error; NULL is allowed. */
struct buffer *buffer_hinted(struct buffer *b, uint32_t flags);

/* The buffer of a Buffer or an Array; NULL: it is neither. */
struct buffer *buffer_of(PyObject *o);
/* The buffer of a Buffer, or of an Array that is open; raises where not. */
struct buffer *buffer_of_open(PyObject *o);

/* Whether its user may still use it, and not only its arrays; raises where not. */
bool buffer_is_open(const struct buffer *self);
/* Whether anything keeps it open: views and tensors may outlive the user's with block; raises where
 * not. */
bool buffer_is_alive(const struct buffer *self);

/* The array of that name or, where name is NULL, at that position. Returns as gpushm_array_get(),
 * and raises nothing. */
int buffer_array(struct buffer *self, const char *name, size_t at, struct gpushm_array **ret);

/* Closes it. Where arrays other than the owner, tensors, memoryviews or calls use it: raises InUse,
 * which names them, and changes nothing. */
int buffer_close(struct buffer *self);

/* The end of a with block: closes the views and the buffer. Where tensors or memoryviews still use
 * the buffer, it stays open until the last of them ends, and a ResourceWarning names them. raised:
 * the type of the exception that ends the block, or None. An error says enough about contents that
 * are not published. */
int buffer_leave(struct buffer *self, PyObject *raised);

/* Called by everything that stops using the buffer; closes it if it was the last user after
 * buffer_leave(). Raises nothing. */
void buffer_settle(struct buffer *self);

/* Leaves the buffer's stream. Closes arrays and the buffer as buffer_leave(), without a warning. */
int buffer_end_stream(struct buffer *self);

/* Closes the arrays in the slot that no memoryview and no call uses, and takes its frame. The
 * caller has a reference to its owner: the arrays may have the last. */
struct gpushm_frame *buffer_end_slot(struct buffer *self, struct slot *slot);

/* Between the two no other thread can close it: around calls without the GIL. r: what the call has
 * returned, which buffer_release() raises where it is negative. */
void buffer_hold(struct buffer *self);
int buffer_release(struct buffer *self, int r);

/* tp_traverse, tp_dealloc. */
int buffer_traverse(PyObject *o, visitproc visit, void *arg);
void buffer_dealloc(PyObject *o);

/* Methods and functions of the module, which core.pyi.in describes. */
PyObject *OfBuffer_discard(PyObject *o, PyObject *unused);
PyObject *OfBuffer_publish(PyObject *o, PyObject *args);
PyObject *OfBuffer_publish_as(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *OfBuffer_suspend(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *OfBuffer_resume(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *Array_close(PyObject *o, PyObject *unused);
PyObject *Buffer_set_attrs(PyObject *o, PyObject *attrs);
PyObject *module_report_unpublished(PyObject *module, PyObject *unused);
PyObject *module_opened(PyObject *module, PyObject *unused);

/* ---- suspend.c ---- */

/* Raises StateError where it is suspended. */
bool buffer_is_mapped(const struct buffer *self);

/* object_address(p) of what libgpushm returns NULL for while the buffer is suspended. */
PyObject *buffer_address(const struct buffer *self, void *p);

/* ---- arrays ---- */

/* Takes *a over, an array of b's, and frees it where this fails. Where r is negative, raises it
 * instead: a call of libgpushm that writes *a can be an argument. */
PyObject *array_new(struct buffer *b, int r, struct gpushm_array **a);

/* Whether it is open; raises where not. */
bool array_is_open(const struct array *self);

/* Between the two no thread can close it: around calls without the GIL. */
void array_hold(struct array *self);
void array_release(struct array *self);

/* What orders users of the array: that of its slot or of its buffer. */
struct order *array_order(struct array *self);

/* Notes that a copy was queued on that stream, or done. */
int array_queued(struct array *self, const struct stream *stream);

/* Bytes of an element; 0 for types narrower than a byte. */
Py_ssize_t array_itemsize(const struct array *self);

/* Whether an open array may be written to. */
bool array_is_writable(const struct array *self);
/* Raises ReadOnly where not. */
int array_check_writable(const struct array *self);

/* For one without an address: in a forked child libgpushm has none, and this raises why. */
int array_check_child(const struct array *self);

/* tp_traverse, tp_dealloc. */
int array_traverse(PyObject *o, visitproc visit, void *arg);
void array_dealloc(PyObject *o);
