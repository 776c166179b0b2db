/* SPDX-License-Identifier: MIT
 *
 * The rows of the result: one operation, measured with gpushm and with the steps alone that no
 * broker can leave out.
 */
#pragma once

#include "tests/bench/sample.h"

#define ROWS_MAX 96

/* The goal for the medians. */
enum reach {
	REACH_NOTHING,	  /* only reported */
	REACH_RATIO,	  /* ours / floor at most */
	REACH_RATE,	  /* ours / floor at least: more is better */
	REACH_DIFFERENCE, /* ours - floor at most, in the row's unit */
	REACH_VALUE,	  /* ours at most, in the row's unit */
};

struct row {
	char id[48];	   /* "attach_host_2M" */
	char what[72];	   /* "attach + close, host, 2 MiB" */
	char floor_is[72]; /* "round trip with fd + mmap; munmap" */
	const char *unit;
	struct figures ours, floor; /* floor.n is 0: no floor */
	enum reach reach;
	double at_most;	 /* or at least, for a rate */
	char series[24]; /* the name of the curve; "": the row is not on a curve */
	double x;	 /* position on the curve */
};

struct rows {
	struct row all[ROWS_MAX];
	size_t n;
};

/* Copies it; prints it as a line of the table at once, so that a long run can be watched. */
void rows_add(struct rows *r, const struct row *row);

/* The value to compare with at_most. */
double row_judged(const struct row *row);
/* Also true for REACH_NOTHING. */
int row_reached(const struct row *row);

/* "2 MiB", and "2M" for ids. A static buffer each, of the last four calls. */
const char *size_text(unsigned long long bytes);
const char *size_id(unsigned long long bytes);
