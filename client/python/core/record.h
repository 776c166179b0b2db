/* SPDX-License-Identifier: MIT
 *
 * libgpushm's structs as named tuples of Python.
 */
#pragma once

#include "client/python/core/object.h"

struct record; /* proto/record.h */

/* Adds the types to the module. */
int record_init(PyObject *module);

/* Of struct gpushm_stat and so on. */
extern const struct record *const record_stat,
	*const record_pool, *const record_status, *const record_event,
							  *const record_logged_event,
								  *const record_stream_stats,
									  *const record_stream_info;

/* A new object for such a struct, and a list of them. */
PyObject *record_one(const struct record *r, const void *from);
PyObject *record_list(const struct record *r, const void *const *structs, size_t n);
