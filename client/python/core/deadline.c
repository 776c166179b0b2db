/* SPDX-License-Identifier: MIT
 *
 * Deadlines: numbers and the clock, no more.
 */
#include "client/python/core/deadline.h"

#include <time.h>

#define TURN_MS 100u
#define SECONDS_MAX 1e9 /* some 30 years are for ever */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int deadline_from(PyObject *seconds, void *ret)
{
	struct deadline *d = ret;
	double s;

	if (seconds == Py_None) {
		*d = (struct deadline){ .forever = true };
		return 1;
	}
	s = PyFloat_AsDouble(seconds);
	if (s == -1.0 && PyErr_Occurred())
		return 0;
	if (!(s >= 0)) {
		PyErr_SetString(
			PyExc_ValueError,
			"a timeout is a number of seconds from 0, or None to wait for ever");
		return 0;
	}
	*d = (struct deadline){ .forever = s > SECONDS_MAX };
	if (!d->forever && s > 0)
		d->at = now_ns() + (uint64_t)(s * 1e9);
	return 1;
}

uint64_t deadline_turn(const struct deadline *d)
{
	uint64_t now, left;

	if (d->forever)
		return TURN_MS;
	if (d->at == 0)
		return 0;
	now = now_ns();
	left = d->at > now ? (d->at - now + 999999u) / 1000000u : 0;
	return left < TURN_MS ? left : TURN_MS;
}
