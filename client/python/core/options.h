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
	unsigned mode;
	int transient, refuse_dirty;
	PyObject *attrs, *gid, *device; /* None or NULL: not given */
};

/* ret->wait stays as it is. 0; -1: raised. The caller ends it with options_done(). */
int options_from(const struct options_words *words, struct options *ret);
void options_done(struct options *o);

#endif
