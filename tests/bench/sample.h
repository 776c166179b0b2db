/* SPDX-License-Identifier: MIT
 *
 * A sample: the values of one measurement, and the figures that describe them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct sample {
	double *values;
	size_t n, room;
};

struct figures {
	double min, median, p99;
	size_t n;
};

static inline double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void sample_add(struct sample *s, double value);

/* Sorts the sample. For an empty sample all figures are NAN, and n is 0. */
struct figures sample_figures(struct sample *s);

/* The figures of a single value. */
struct figures figures_of(double value);

/* For _cleanup_(). */
void sample_done(struct sample *s);
