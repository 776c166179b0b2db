/* SPDX-License-Identifier: MIT
 *
 * libgpushm-load, as load.c and pull.c call it.
 */
#pragma once

#include "client/python/core/args.h"
#include "client/python/core/buffer.h"

#include "client/gpushm_load.h"

/* Its functions, once load_library() has returned 0. */
struct load_calls {
	void *handle; /* stays open; NULL: not opened yet */
	__typeof__(gpushm_load) *load;
	__typeof__(gpushm_load_key) *load_key;
	__typeof__(gpushm_save) *save;
	__typeof__(gpushm_verify) *verify, *digest;
	__typeof__(gpushm_pull) *pull;
	__typeof__(gpushm_pull_wait) *pull_wait;
};
extern struct load_calls load_calls;

/* Opens the library. 0; -1: raised. */
int load_library(void);

/* The user of load_on_progress() is a callable or None. load_check_progress(): 0; -1: raised.
 * load_result(): for what a call has returned that was given load_on_progress(): 0 or more; -1:
 * raised. */
gpushm_load_progress_fn load_on_progress;
int load_check_progress(PyObject *progress);
int load_result(int r);

/* How bytes come, by a gpushm.Transport or None. transport_from(): 0; -1: raised; transport_done()
 * ends it, also then. transport_check_keywords() raises where one of a call's is a Transport's. */
struct transport {
	struct gpushm_remote_options remote;
	PyObject *paths[4]; /* owned: bytes that `remote` points into, or NULL */
	uint32_t threads, flags;
};
int transport_from(PyObject *o, struct transport *t);
int transport_check_keywords(PyObject *kwargs);
void transport_done(struct transport *t);

/* What load() and pull() have in common while they run. */
struct load_ask {
	struct ask ask;
	const char *name; /* NULL: the library's */
	struct options options;
	struct deadline timeout; /* for another process that loads */
	struct gpushm_load_options load;
	struct transport transport;
	struct gpushm_buffer *ret;
};

/* Their arguments that need more than PyArg_Parse...(). */
struct load_args {
	PyObject *name, *progress, *transport;
	struct options_args options;
	int if_missing, replace, verify;
};

/* 0; -1: raised. load_ask_done() ends it, also then. flags: those of the transport's that count. */
int load_ask_from(const struct load_args *args, uint32_t flags, struct load_ask *a);
void load_ask_done(struct load_ask *a);

/* Sets how long the library waits, when it is called. */
void load_ask_waits(struct load_ask *a);

/* Makes the Buffer on a link of its own. NULL: raised. */
PyObject *load_on(struct connection *c, struct load_ask *a, PyObject *name);
