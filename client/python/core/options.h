/* SPDX-License-Identifier: MIT
 *
 * What create() and open() have in common: options, from Python's words.
 */
#ifndef GPUSHM_PYTHON_OPTIONS_H
#define GPUSHM_PYTHON_OPTIONS_H

#include "client/python/core/deadline.h"
#include "client/python/core/object.h"

#define OPTIONS_ATTRS_MAX 64

struct options {
	struct gpushm_options o;
	struct deadline wait;
	PyObject *keep;		   /* a list of what attrs point into; owned; NULL */
	struct gpushm_attr *attrs; /* owned; NULL */
};

/* As arguments are parsed; objects are borrowed. */
struct options_words {
	const char *pool;
	uint32_t mode;
	int transient, refuse_dirty;
	PyObject *attrs, *gid, *device; /* None or NULL: not given */
};

/* For PyArg_Parse...'s O&: a mode as a uint32_t, and not 0, by which libgpushm means its default.
 * 1, or 0: raised. */
int options_mode(PyObject *o, void *ret);

/* ret->wait stays as it is. 0; -1: raised. The caller ends it with options_done(). */
int options_from(const struct options_words *words, struct options *ret);
void options_done(struct options *o);

#endif
