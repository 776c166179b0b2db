/* SPDX-License-Identifier: MIT
 *
 * gpushm.Connection: how this process talks to a daemon, whichever thread asks. It connects when it
 * is first used, and again when the daemon that it knew has gone.
 */
#ifndef GPUSHM_PYTHON_CONNECTION_H
#define GPUSHM_PYTHON_CONNECTION_H

#include "client/python/core/deadline.h"
#include "client/python/core/object.h"

/* One connection of libgpushm's, for as long as anybody uses it. Counted under the GIL. */
struct link {
	struct gpushm *c; /* owned */
	unsigned refs;
	bool proven; /* it has answered: what it no longer answers is worth another one */
};

struct connection {
	PyObject_HEAD
	PyObject *weakrefs;
	char *path;	   /* owned; NULL: by the rule of gpushm_connect() */
	struct link *link; /* NULL: to be made when it is needed */
	struct link *idle; /* one that a thread waited on, for the next that waits; NULL */
	bool common; /* the one that the module's functions use: a forked child gets a new link */
	bool closed;
};

/* A question to the daemon. run() is called without the GIL, perhaps more than once, with
 * timeout_ms set; it returns what libgpushm returned. */
struct ask {
	int (*run)(struct gpushm *c, struct ask *a);
	uint64_t timeout_ms;
};

/* Adds the type to the module. Each of those functions, tables that end with NULL, becomes a method
 * of it: called as one of the module, its self is the module. 0; -1: raised. */
int connection_init(PyObject *module, PyMethodDef *const *verbs);

/* The connection that a function of the module or a method is to use: self, if it is one, or the
 * process's common one. A new reference. NULL: raised. */
struct connection *connection_of(PyObject *self);

/* Closes the common one's links, for the end of the process; whoever asks again connects again. */
PyObject *connection_end_common(PyObject *module, PyObject *unused);

/* Asks once, without waiting. Where the daemon has gone and the connection had worked, asks its
 * successor. 0 or -errno; then nothing is raised yet, unless PyErr_Occurred(): error_raise(). */
int connection_try(struct connection *self, struct ask *a);

/* connection_try() that raises. 0 or -1. */
int connection_ask(struct connection *self, struct ask *a);

/* Asks on a link of its own until the deadline, in short turns, so that a signal is heard and other
 * threads are not kept waiting. What is opened keeps that link. As connection_try(). */
int connection_try_apart(struct connection *self, struct ask *a, const struct deadline *d);

/* Waits for a name to be published. As connection_try(). */
int connection_try_wait(struct connection *self, const char *name, const struct deadline *d);

#endif
