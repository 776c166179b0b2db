/* SPDX-License-Identifier: MIT
 *
 * gpushm.types.Connection: this process's requests to a daemon, from any thread. It connects when
 * it is first used, and again when its daemon has ended.
 */
#pragma once

#include "client/python/core/args.h"
#include "client/python/core/object.h"

#include "client/gpushm_async.h"

/* One connection of libgpushm's; it lives as long as it has references. Counted under the GIL. */
struct link {
	struct gpushm *c; /* owned */
	unsigned refs;
	bool proven; /* it has got a reply: when it is closed later, a new one is worth a try */
};

struct connection {
	OBJECT_HEAD
	char *path;	      /* owned; NULL: by the rule of gpushm_connect() */
	struct link *link;    /* for requests; NULL: made when it is needed */
	struct link *idle;    /* for the next thread that waits; NULL: made when it is needed */
	struct gpushm *spare; /* for the next call of asyncio's, if no buffer has it; owned; NULL */
	bool has_timeout;     /* set_timeout() was called */
	uint64_t timeout_ms;
	bool common; /* the one of the module's functions: a forked child gets a new link */
	bool closed;
};

/* A request to the daemon. run() is called without the GIL, perhaps more than once, with timeout_ms
 * set; it returns what libgpushm returned. */
struct ask {
	int (*run)(struct gpushm *c, struct ask *a);
	uint64_t timeout_ms;
	bool is_over; /* run() has found that the time is over, and returns -ETIMEDOUT */
};

/* The type, and its methods that ask the daemon. As functions of the module they get the module. */
extern struct type_row connection_row;
PyObject *Connection_create(PyObject *self, PyObject *args);
PyObject *Connection_open_or_create(PyObject *self, PyObject *args);
PyObject *Connection_open(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);
PyObject *Connection_open_table(PyObject *self, PyObject *name);
PyObject *Connection_open_many(PyObject *self, PyObject *const *args, Py_ssize_t n,
			       PyObject *keywords);
PyObject *Connection_send_open(PyObject *self, PyObject *const *args, Py_ssize_t n,
			       PyObject *keywords);
PyObject *Connection_query(PyObject *self, PyObject *args);
PyObject *Connection_send_wait(PyObject *self, PyObject *args);
PyObject *Connection_watch(PyObject *self, PyObject *args);
PyObject *Connection_events(PyObject *self, PyObject *args);
PyObject *Connection_load(PyObject *self, PyObject *args);
PyObject *Connection_stream_new(PyObject *self, PyObject *args);
PyObject *Connection_follow(PyObject *self, PyObject *args);
PyObject *Connection_set_timeout(PyObject *self, PyObject *seconds);
PyObject *module_disconnect(PyObject *module, PyObject *unused);

/* The connection of a function of the module or of a method: self, if self is a Connection, else
 * the process's common one, which lives as long as the process. Borrowed. */
struct connection *connection_of(PyObject *self);

/* Sends the request once, without waiting. If the daemon has ended and the connection had worked
 * before, sends it to the daemon's successor. Returns 0 or -errno; the caller raises the latter by
 * error_raise(). */
int connection_try(struct connection *self, struct ask *a);

/* Sends the request on a new link until the deadline, in short turns, so that signals are handled
 * and other threads can use the connection. A buffer that is opened keeps that link. Returns as
 * connection_try(). */
int connection_try_apart(struct connection *self, struct ask *a, const struct deadline *d);

/* Sends the request in short turns, as above, on a link that the next thread that waits uses again.
 * Returns as connection_try(); but -ETIMEDOUT is not raised. */
int connection_try_idle(struct connection *self, struct ask *a, const struct deadline *d);

/* A connection for a call of client/gpushm_async.h, which has it to itself; the caller owns it. It
 * connects when the call is processed. */
int connection_take_spare(struct connection *self, struct gpushm **ret);
/* Takes it back for another call, also where a buffer has it until then. */
void connection_put_spare(struct connection *self, struct gpushm *c);

/* connection_try() for something of that name; waits, on another link, until the name is published.
 * It may be unlinked in between, and published again. Waits at least once, so that the error is the
 * timeout. */
int connection_try_when(struct connection *self, struct ask *a, const char *name,
			const struct deadline *d);

/* Whether a request that waits has ended with its time: a create, or an evicted buffer, found no
 * room; the name is not published; or no process of the owner has brought the memory back. */
bool connection_is_turns_end(int r);

/* Waits until a name is published. Returns as connection_try(). */
int connection_try_wait(struct connection *self, const char *name, const struct deadline *d);

/* ---- call.c ----
 *
 * gpushm._Call: a request of asyncio's, client/gpushm_async.h. _asyncio.py waits for it. Each has a
 * connection of its own, which a buffer that it brings keeps: a request for one buffer never meets
 * the call for another one.
 */

struct call {
	PyObject_HEAD
	struct connection *connection; /* a reference */
	struct gpushm *c;	       /* owned */
	struct gpushm_call *call;      /* owned; NULL: it is over */
	bool done;		       /* it has a result */
	PyObject *name;		       /* a reference */
	PyObject *how;		       /* a tuple, for finish(); owned; NULL */
	uint32_t flags;		       /* of the options, for finish() */
	/* The result, from a buffer that it takes over. NULL: the result is True. */
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
