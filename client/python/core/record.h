/* SPDX-License-Identifier: MIT
 *
 * libgpushm's structs as named tuples of Python.
 */
#pragma once

#include "client/gpushm_events.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "client/python/core/object.h"

/* Adds the types to the module. */
int record_init(PyObject *module);

/* A new object each. */
PyObject *record_stat(const struct gpushm_stat *s);
PyObject *record_status(const struct gpushm_status *s);
PyObject *record_stream_stats(const struct gpushm_stream_stats *s);
PyObject *record_event(const struct gpushm_event *e);

/* Lists. */
PyObject *record_stats(struct gpushm_stat *const *stats, size_t n);
PyObject *record_events(const struct gpushm_events *e); /* NULL: empty */
PyObject *record_streams(struct gpushm_stream_info *const *streams, size_t n);
PyObject *record_pools(struct gpushm_pool *const *pools, size_t n);
