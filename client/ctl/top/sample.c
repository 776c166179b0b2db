/* SPDX-License-Identifier: MIT
 *
 * A sample is STATUS, POOLS, one LIST for each 512 buffers or so, METRICS, and STREAMS if there are
 * any. They are not one moment: a buffer may be missing in the list that a pool still counts.
 */
#include "client/ctl/top/top.h"

#include "client/ctl/pattern.h"
#include "client/gpushm_load_private.h"
#include "client/gpushm_metrics.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <string.h>

#define IDLE_FACTOR 9u

static void free_sample(struct sample **s)
{
	*s = sample_free(*s);
}

struct sample *sample_free(struct sample *s)
{
	if (s) {
		gpushm_free(s->status);
		gpushm_free(s->buffers);
		gpushm_free(s->streams);
		gpushm_free(s->pools);
	}
	free(s);
	return NULL;
}

uint64_t sample_due(uint64_t began, uint64_t ended, uint64_t period)
{
	uint64_t rested = ended + IDLE_FACTOR * (ended - began);

	return began + period > rested ? began + period : rested;
}

static uint64_t succeeded(const struct gpushm_metrics *m, const char *verb)
{
	for (size_t i = 0; i < m->n_verbs; i++)
		for (size_t k = 0; !strcmp(m->verbs[i]->verb, verb) && k < m->verbs[i]->n_results;
		     k++)
			if (!strcmp(m->verbs[i]->results[k]->code, "OK"))
				return m->verbs[i]->results[k]->count;
	return 0;
}

static int take_counts(struct gpushm *c, struct sample *s)
{
	_cleanup_(free_result) struct gpushm_metrics *m = NULL;
	int r = gpushm_metrics(c, &m);

	if (r < 0)
		return r;
	s->creates = succeeded(m, "create");
	s->opens = succeeded(m, "open");
	return 0;
}

static int take_streams(struct gpushm *c, struct sample *s)
{
	bool any = false;

	for (size_t i = 0; i < s->n_buffers; i++)
		any = any || s->buffers[i]->stream;
	return any ? gpushm_streams(c, NULL, &s->streams, &s->n_streams) : 0;
}

int sample_take(struct gpushm *c, const char *word, struct sample **ret)
{
	_cleanup_(free_sample) struct sample *s = calloc(1, sizeof(*s));
	uint64_t begun = clock_monotonic_ns();
	int r;

	if (!s)
		return -ENOMEM;
	r = gpushm_status(c, &s->status);
	if (r == 0)
		r = gpushm_pools(c, &s->pools, &s->n_pools);
	if (r == 0)
		r = pattern_list(c, word, GPUSHM_HOLDERS, &s->buffers, &s->n_buffers);
	if (r == 0)
		r = take_streams(c, s);
	if (r == 0)
		r = take_counts(c, s);
	if (r < 0)
		return r;
	s->taken_ns = clock_monotonic_ns();
	s->time_ns = clock_realtime_ns();
	s->cost_ns = s->taken_ns - begun;
	*ret = take_ptr(s);
	return 0;
}
