/* SPDX-License-Identifier: MIT
 *
 * gpushm._Call: a request of asyncio's, client/gpushm_async.h. _asyncio.py waits for it. Each has a
 * connection of its own, which a buffer that it brings keeps: a request for one buffer never meets
 * the call for another one.
 */
#pragma once

#include "client/gpushm_async.h"
#include "client/python/core/connection.h"

struct call {
	PyObject_HEAD
	struct connection *connection; /* a reference */
	struct gpushm *c;	       /* owned */
	struct gpushm_call *call;      /* owned; NULL: it is over */
	bool done;		       /* it has a result */
	PyObject *name;		       /* a reference */
	PyObject *how;		       /* a tuple, for finish(); owned; NULL */
	uint32_t flags;		       /* of the options, for finish() */
	/* The result, from a buffer that it takes over. NULL: the result is None. */
	PyObject *(*finish)(struct call *self, struct gpushm_buffer *b);
};

/* A call of a function of the module or of a method, which has still to be sent on its c. */
struct call *call_new(PyObject *self, PyObject *name);

/* r: of the function that has sent it. Returns the call or, where r is negative, ends it and
 * raises. */
PyObject *call_sent(struct call *self, int r);

/* The time that the daemon is to wait, in ms. It waits at least once, so that the error is the
 * timeout. */
uint64_t call_wait_ms(const struct deadline *d);
