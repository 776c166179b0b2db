/* SPDX-License-Identifier: MIT
 *
 * One EVENTS request, for gpushm.events(): _events.py makes an iterator of it. It waits on a link
 * of its own, so that the connection's other requests go on.
 */
#include "client/python/core/args.h"
#include "client/python/core/connection.h"
#include "client/python/core/module.h"
#include "client/python/core/record.h"

#include "client/gpushm_events.h"

struct events_ask {
	struct ask ask;
	struct gpushm_events_options options;
	uint64_t lost;
	struct gpushm_events *events; /* owned; NULL: the time is over */
};

/* What was lost before a turn that brought nothing is not forgotten. */
static int run_events(struct gpushm *c, struct ask *ask)
{
	struct events_ask *a = container_of(ask, struct events_ask, ask);
	int r;

	a->options.timeout_ms = ask->timeout_ms;
	r = gpushm_events(c, &a->options, &a->events);
	if (r < 0)
		return r;
	a->lost += a->events->lost;
	a->options.after = a->events->last;
	if (a->events->n_events > 0 || ask->timeout_ms == 0)
		return 0;
	a->events = gpushm_free(a->events);
	ask->is_over = true;
	return -ETIMEDOUT;
}

static PyObject *result(const struct events_ask *a)
{
	const struct gpushm_events *e = a->events;
	PyObject *list = record_list(record_logged_event, e ? (const void *const *)e->events : NULL,
				     e ? e->n_events : 0);

	return list ? Py_BuildValue("(NKK)", list, (unsigned long long)a->options.after,
				    (unsigned long long)a->lost)
		    : NULL;
}

PyObject *method_events(PyObject *self, PyObject *args)
{
	struct events_ask a = { .ask.run = run_events, .options.struct_size = sizeof(a.options) };
	struct deadline d = { 0 };
	unsigned long long after;
	struct connection *c;
	PyObject *ret;
	int r = -ECONNRESET;

	if (!PyArg_ParseTuple(args, "KzO&:_events", &after, &a.options.types, deadline_arg, &d))
		return NULL;
	a.options.after = after;
	c = connection_of(self);
	if (c)
		r = deadline_waits(&d) ? connection_try_idle(c, &a.ask, &d)
				       : connection_try(c, &a.ask);
	if (r < 0 && r != -ETIMEDOUT)
		return error_raise(r);
	ret = result(&a);
	gpushm_free(a.events);
	return ret;
}
