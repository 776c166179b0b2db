/* SPDX-License-Identifier: MIT
 *
 * Until when to wait. Python's seconds become turns of some 100 ms, so that Ctrl-C is answered.
 */
#ifndef GPUSHM_PYTHON_DEADLINE_H
#define GPUSHM_PYTHON_DEADLINE_H

#include "client/python/core/object.h"

struct deadline {
	bool forever;
	uint64_t at; /* ns, CLOCK_MONOTONIC; 0: do not wait */
};

/* For PyArg_Parse...'s O&: seconds as a number from 0, None for ever. 1, or 0: raised. */
int deadline_from(PyObject *seconds, void *ret);

/* The next turn in ms; 0: the time is over. */
uint64_t deadline_turn(const struct deadline *d);

#endif
