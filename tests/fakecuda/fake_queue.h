/* SPDX-License-Identifier: MIT
 *
 * What is queued on streams, in its order. Work with nothing before it is done by the call that
 * queues it; behind a wait it is done as soon as the wait is over, by a thread of the driver's or
 * by a call that waits. All functions need the driver's lock.
 */
#pragma once

#include "proto/base/list.h"
#include "tests/fakecuda/fake_call.h"

#include <pthread.h>
#include <stdint.h>

struct context;
struct graph;

enum queue_kind {
	QUEUE_LEGACY,	  /* the legacy default stream: behind and before all of QUEUE_BLOCKING */
	QUEUE_PER_THREAD, /* a thread's default stream; else as QUEUE_BLOCKING */
	QUEUE_BLOCKING,
	QUEUE_NON_BLOCKING
};

struct queue {
	struct list link;
	const struct context *context; /* NULL: destroyed */
	enum queue_kind kind;
	uint64_t id;	       /* no other queue ever has it */
	pthread_t thread;      /* QUEUE_PER_THREAD */
	struct list ops;       /* struct op; the first is done next */
	uint64_t queued, done; /* operations so far */
	unsigned int refs;
	struct graph *capture; /* what is queued becomes nodes of this graph; NULL */
	bool capture_failed;
	CUstreamCaptureMode capture_mode;
	pthread_t captured_by;
};

/* A word, and the value to wait for or to write. */
struct word {
	CUdeviceptr address;
	uint64_t value;
	unsigned int flags; /* CUstreamWaitValue_flags */
	bool wide;	    /* 64 bits; else 32 */
};

typedef void work_fn(void *data);

enum op_kind {
	OP_WORK, /* run(data), with the lock */
	OP_HOST, /* host(argument), by the driver's thread and without the lock */
	OP_WAIT,
	OP_WRITE,
	OP_AFTER /* until `queue` has done that many */
};

struct op {
	struct list link; /* queue::ops, or of a graph's node */
	enum op_kind kind;
	bool running; /* OP_HOST */
	union {
		work_fn *run;
		struct word word;
		struct {
			CUhostFn function;
			void *argument;
		} host;
		struct {
			struct queue *queue; /* owned: a reference */
			uint64_t count;
		} after;
	};
	size_t size;
	_Alignas(16) unsigned char data[]; /* OP_WORK */
};

struct queue *queue_new(const struct context *context, enum queue_kind kind);
struct queue *queue_ref(struct queue *q);
void queue_unref(struct queue *q);
/* That context's legacy default stream, or the calling thread's; NULL: out of memory. */
struct queue *queue_default(const struct context *context, enum queue_kind kind);

/* With a copy of the data behind it. NULL: out of memory. */
struct op *op_new(enum op_kind kind, const void *data, size_t size);
struct op *op_clone(const struct op *op);
void op_free(struct op *op);

/* Queues the operation, or adds it to the graph that is captured. Takes it, NULL too. OUT_OF_MEMORY
 * or STREAM_CAPTURE_INVALIDATED. */
CUresult queue_put(struct queue *q, struct op *op);
/* The rest of the queue waits until the other one has done that many. */
CUresult queue_put_after(struct queue *q, struct queue *other, uint64_t count);
/* The legacy default stream: the same for all that is queued on the streams that it is behind. */
CUresult queue_put_behind_all(struct queue *q);
CUresult queue_put_work(struct queue *q, work_fn *run, const void *data, size_t size);

bool queue_is_idle(const struct queue *q);
/* Does what can be done now, on all queues. */
void queue_pump(void);
/* Waits until the queue has done that many; without the lock meanwhile. */
void queue_wait(struct queue *q, uint64_t count);
/* The same for all that is queued in the context. */
void queue_wait_context(const struct context *context);
/* The context ends: what is queued there is never done. */
void queue_forget_context(const struct context *context);

/* Calls `look` for each. */
void queue_each(void (*look)(struct queue *q, void *argument), void *argument);

/* Whether a wait or a write of a word in these bytes is queued. */
bool queue_uses(uintptr_t start, size_t size);
