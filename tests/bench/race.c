/* SPDX-License-Identifier: MIT
 *
 * Races.
 */
#include "tests/bench/race.h"

#include "proto/base/own.h"

#define ROUNDS_MIN 12

static double timed(void (*run)(void *), void (*after)(void *), void *arg)
{
	double start = now_us(), end;

	run(arg);
	end = now_us();
	if (after)
		after(arg);
	return end - start;
}

static void round_of(const struct race *r, struct sample *ours, struct sample *floor)
{
	double t = timed(r->ours, r->after_ours, r->arg);

	if (ours)
		sample_add(ours, t);
	if (!r->floor)
		return;
	t = timed(r->floor, r->after_floor, r->arg);
	if (floor)
		sample_add(floor, t);
}

void race_run(const struct race *r, const struct options *o, struct row *row)
{
	_cleanup_(sample_done) struct sample ours = { 0 }, floor = { 0 };
	unsigned warm = o->count / 20 + 2;
	double end = now_us() + o->seconds * 1e6;

	while (warm-- > 0 && now_us() < end)
		round_of(r, NULL, NULL);
	for (unsigned i = 0; i < o->count && (i < ROUNDS_MIN || now_us() < end); i++)
		round_of(r, &ours, &floor);
	row->ours = sample_figures(&ours);
	row->floor = sample_figures(&floor);
	row->unit = "us";
}
