/* SPDX-License-Identifier: MIT
 *
 * Samples.
 */
#include "tests/bench/sample.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

void sample_add(struct sample *s, double value)
{
	if (s->n == s->room) {
		s->room = s->room ? s->room * 2 : 256;
		s->values = realloc(s->values, s->room * sizeof(*s->values));
		if (!s->values)
			abort();
	}
	s->values[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct figures sample_figures(struct sample *s)
{
	struct figures f = { NAN, NAN, NAN, s->n };

	if (s->n == 0)
		return f;
	qsort(s->values, s->n, sizeof(*s->values), by_value);
	f.min = s->values[0];
	f.median = s->values[s->n / 2];
	f.p99 = s->values[(s->n * 99) / 100];
	return f;
}

struct figures figures_of(double value)
{
	return (struct figures){ value, value, value, 1 };
}

void sample_done(struct sample *s)
{
	free(s->values);
	*s = (struct sample){ 0 };
}
