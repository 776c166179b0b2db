/* SPDX-License-Identifier: MIT
 *
 * The result as a table.
 */
#include "tests/bench/bench.h"

#include "tests/bench/gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Three significant digits, or the whole number if it has more. */
static const char *figure(double v)
{
	static char texts[8][24];
	static unsigned turn;
	char *text = texts[turn++ % 8];

	if (isnan(v))
		return "";
	snprintf(text, sizeof(texts[0]), v < 10 ? "%.2f" : v < 1000 ? "%.1f" : "%.0f", v);
	return text;
}

static void write_judgement(const struct row *row, FILE *f)
{
	static const char *const before[] = { [REACH_RATIO] = "<= ",
					      [REACH_RATE] = ">= ",
					      [REACH_DIFFERENCE] = "<= + ",
					      [REACH_VALUE] = "<= " };
	double judged = row_judged(row);
	char text[32] = "", wanted[32] = "";

	if (row->reach == REACH_DIFFERENCE)
		snprintf(text, sizeof(text), "+ %s", figure(judged));
	else if (row->reach != REACH_VALUE && row->floor.n)
		snprintf(text, sizeof(text), "%.2f x", judged);
	if (row->reach != REACH_NOTHING)
		snprintf(wanted, sizeof(wanted), "%s%.4g%s", before[row->reach], row->at_most,
			 row->reach == REACH_RATIO || row->reach == REACH_RATE ? " x" : "");
	fprintf(f, " %9s  %-9s %s\n", text, wanted, row_reached(row) ? "" : "NOT REACHED");
}

static void write_row(const struct row *row, FILE *f)
{
	const struct figures none = { NAN, NAN, NAN, 0 };
	const struct figures *floor = row->floor.n ? &row->floor : &none;

	fprintf(f, "%-52s %6zu %8s %8s %8s  %8s %8s %8s %-4s", row->what, row->ours.n,
		figure(row->ours.min), figure(row->ours.median), figure(row->ours.p99),
		figure(floor->min), figure(floor->median), figure(floor->p99), row->unit);
	write_judgement(row, f);
}

void text_write(const struct bench *b, FILE *f)
{
	struct utsname u;

	uname(&u);
	fprintf(f, "gpushm %s, %s %s, %ld cores, %s%s\n\n", gpushm_version(), u.sysname, u.release,
		sysconf(_SC_NPROCESSORS_ONLN), b->gpu ? gpu_name() : "no GPU",
		b->gpu && gpu_is_fake() ? ": A STAND-IN FOR TESTS, ITS FIGURES MEAN NOTHING" : "");
	fprintf(f, "%-52s %6s %26s  %26s\n", "", "", "gpushm     ", "floor     ");
	fprintf(f, "%-52s %6s %8s %8s %8s  %8s %8s %8s %-4s %9s  %s\n", "operation", "n", "min",
		"median", "p99", "min", "median", "p99", "", "", "wanted");
	for (size_t i = 0; i < b->rows.n; i++)
		write_row(&b->rows.all[i], f);
	fprintf(f, "\nThe floor is:\n");
	for (size_t i = 0; i < b->rows.n; i++)
		if (b->rows.all[i].floor.n)
			fprintf(f, "  %-52s %s\n", b->rows.all[i].what, b->rows.all[i].floor_is);
}
