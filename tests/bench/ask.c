/* SPDX-License-Identifier: MIT
 *
 * Asking: one request and its reply, without fds or memory.
 */
#include "client/gpushm_query.h"
#include "tests/bench/bench.h"

#include "proto/base/own.h"

#include <check.h>

static void ours(void *arg)
{
	struct bench *b = arg;
	struct gpushm_stat *st = NULL;

	bench_ok(gpushm_stat(b->c, "bench/weight", 0, 0, &st), "STAT");
	gpushm_free(st);
}

static void floor_ask(void *arg)
{
	struct bench *b = arg;

	floor_trip(b->floor.socket, &b->stat, 0, NULL);
}

void ask_run(struct bench *b)
{
	const struct race race = { b, ours, floor_ask, NULL, NULL };
	struct row row = { .id = "ask",
			   .what = "ask (STAT)",
			   .floor_is = "seqpacket echo behind an epoll",
			   .reach = REACH_RATIO,
			   .at_most = 1.15 };

	if (!options_want(&b->o, row.id))
		return;
	race_run(&race, &b->o, &row);
	rows_add(&b->rows, &row);
}
