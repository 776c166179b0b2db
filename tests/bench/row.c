/* SPDX-License-Identifier: MIT
 *
 * Rows.
 */
#include "tests/bench/row.h"

#include <check.h>
#include <math.h>
#include <stdio.h>

void rows_add(struct rows *r, const struct row *row)
{
	ck_assert_uint_lt(r->n, ROWS_MAX);
	r->all[r->n++] = *row;
	fprintf(stderr, "%s: %.2f %s\n", row->id, row_judged(row),
		row_reached(row) ? "" : "(not reached)");
}

double row_judged(const struct row *row)
{
	switch (row->reach) {
	case REACH_DIFFERENCE:
		return row->ours.median - row->floor.median;
	case REACH_VALUE:
		return row->ours.median;
	default:
		return row->floor.n ? row->ours.median / row->floor.median : row->ours.median;
	}
}

int row_reached(const struct row *row)
{
	double judged = row_judged(row);

	if (row->reach == REACH_NOTHING)
		return 1;
	return row->reach == REACH_RATE ? judged >= row->at_most : judged <= row->at_most;
}

static const char *scaled(unsigned long long bytes, const char *const units[5])
{
	static char texts[4][24];
	static unsigned turn;
	char *text = texts[turn++ % 4];
	int i = 0;

	for (; i < 4 && bytes >= 1024 && bytes % 1024 == 0; i++)
		bytes /= 1024;
	snprintf(text, sizeof(texts[0]), "%llu%s", bytes, units[i]);
	return text;
}

const char *size_text(unsigned long long bytes)
{
	return scaled(bytes, (const char *const[]){ " B", " KiB", " MiB", " GiB", " TiB" });
}

const char *size_id(unsigned long long bytes)
{
	return scaled(bytes, (const char *const[]){ "", "K", "M", "G", "T" });
}
