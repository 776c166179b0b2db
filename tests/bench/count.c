/* SPDX-License-Identifier: MIT
 *
 * Counting: what the daemon's counts of requests cost, beside a request. A hundred of these counts
 * are to take no longer than one request: counting then costs at most 1 % of it.
 */
#include "daemon/util/verb_counts.h"
#include "tests/bench/bench.h"

#include <string.h>

#define TIMES 100u

static struct verb_counts verbs[VERBS_MAX];

/* As the daemon does it, in a function that the compiler can't look into. */
__attribute__((noinline)) static void count(unsigned verb, enum code code, uint64_t ns)
{
	verbs[verb].results[code]++;
	verb_counts_took(&verbs[verb], ns);
	__asm__ volatile("" ::: "memory");
}

/* Verbs, results and times come in turns, as from many clients. */
static void ours(void *arg)
{
	for (unsigned i = 0; i < TIMES; i++)
		count(1 + i % 18, i % 10 ? CODE_OK : CODE_NOT_FOUND, 1000 + i * i);
}

static void floor_ask(void *arg)
{
	struct bench *b = arg;

	bench_call(&b->raw,
		   REQUEST(STAT, Stat, stat, BYTES(name, "bench/weight"), SET(holders, 0)));
}

void count_run(struct bench *b)
{
	const struct race race = { b, ours, floor_ask, NULL, NULL };
	struct row row = { .id = "count",
			   .what = "count 100 requests for METRICS",
			   .floor_is = "gpushm's own, one request (STAT)",
			   .reach = REACH_RATIO,
			   .at_most = 1 };

	if (!options_want(&b->o, row.id))
		return;
	race_run(&race, &b->o, &row);
	rows_add(&b->rows, &row);
}
