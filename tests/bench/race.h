/* SPDX-License-Identifier: MIT
 *
 * A race: two ways of doing the same, in turns, so that whatever else the machine does happens to
 * both.
 */
#ifndef GPUSHM_TESTS_BENCH_RACE_H
#define GPUSHM_TESTS_BENCH_RACE_H

#include "tests/bench/options.h"
#include "tests/bench/row.h"

struct race {
	void *arg;
	void (*ours)(void *arg);				  /* what is timed */
	void (*floor)(void *arg);				  /* NULL: there is none */
	void (*after_ours)(void *arg), (*after_floor)(void *arg); /* what is not; NULL: nothing */
};

/* Runs it until o->count rounds, or o->seconds, are over, after some that do not count, and fills
 * in the row's figures in microseconds. */
void race_run(const struct race *r, const struct options *o, struct row *row);

#endif
