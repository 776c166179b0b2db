/* SPDX-License-Identifier: MIT
 *
 * The result: rows, each with the ways that were compared in it.
 */
#pragma once

#include "tests/bench/row.h"

#include <stdbool.h>
#include <stdio.h>

#define WAYS_MAX 8

struct result {
	const char *way, *label; /* "stream", "gpushm" */
	struct sample sample;
	struct figures figures; /* n is 0: it failed */
	char error[256];
};

struct comparison {
	const char *id, *what, *unit;
	enum reach reach; /* of the first way, which is gpushm's; for the ratios beside `beside` */
	double bound;
	const char *beside; /* a way's id; "": none */
	struct result ways[WAYS_MAX];
	size_t n_ways;
};

struct report {
	const char *gpu; /* its name; NULL: none */
	bool fake, mps, quick;
	struct comparison *all;
	size_t n;
};

/* Sorts the samples, and prints the row as lines of text. */
void comparison_finish(struct comparison *c);

void report_write(const struct report *r, FILE *f);
