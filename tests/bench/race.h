/* SPDX-License-Identifier: MIT
 *
 * A race: two ways of doing the same, in turns, so that other load on the machine affects both.
 */
#pragma once

#include "tests/bench/options.h"
#include "tests/bench/row.h"

struct race {
	void *arg;
	void (*ours)(void *arg);				  /* timed */
	void (*floor)(void *arg);				  /* NULL: no floor */
	void (*after_ours)(void *arg), (*after_floor)(void *arg); /* not timed; NULL: nothing */
};

/* Runs o->count rounds, or rounds for o->seconds, after some that do not count, and fills in the
 * row's figures in microseconds. */
void race_run(const struct race *r, const struct options *o, struct row *row);
