/* SPDX-License-Identifier: MIT
 *
 * The result as text and as JSON.
 */
#include "tests/bench/streams/report.h"

#include "client/gpushm.h"

#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const struct result *beside(const struct comparison *c)
{
	for (size_t i = 0; i < c->n_ways; i++)
		if (strcmp(c->ways[i].way, c->beside) == 0 && c->ways[i].figures.n)
			return &c->ways[i];
	return NULL;
}

/* The value to compare with the bound; NAN: it can't be said. */
static double judged(const struct comparison *c)
{
	const struct result *other = beside(c);
	double ours = c->ways[0].figures.median;

	if (c->reach == REACH_VALUE)
		return ours;
	if (!other)
		return NAN;
	return c->reach == REACH_DIFFERENCE ? ours - other->figures.median
					    : ours / other->figures.median;
}

static bool reached(const struct comparison *c)
{
	double v = judged(c);

	if (c->ways[0].figures.n == 0)
		return false;
	if (c->reach == REACH_NOTHING || isnan(v))
		return true;
	return c->reach == REACH_RATE ? v >= c->bound : v <= c->bound;
}

static void print_wanted(const struct comparison *c, FILE *f)
{
	const char *times = c->reach == REACH_RATIO || c->reach == REACH_RATE ? " x" : "";

	if (c->reach == REACH_NOTHING)
		return;
	fprintf(f, "   wanted %s %g%s%s%s", c->reach == REACH_RATE ? ">=" : "<=", c->bound, times,
		times[0] ? " of " : "", times[0] ? c->beside : "");
	if (isnan(judged(c)))
		fprintf(f, ": not measured");
	else
		fprintf(f, ": %.3g%s", judged(c), reached(c) ? "" : ", NOT REACHED");
}

void comparison_finish(struct comparison *c)
{
	printf("%s [%s], %s", c->what, c->id, c->unit);
	for (size_t i = 0; i < c->n_ways; i++)
		c->ways[i].figures = sample_figures(&c->ways[i].sample);
	print_wanted(c, stdout);
	printf("\n");
	for (size_t i = 0; i < c->n_ways; i++) {
		const struct result *r = &c->ways[i];

		if (r->figures.n == 0)
			printf("    %-48s left out: %s\n", r->label, r->error);
		else
			printf("    %-48s %12.2f   least %10.2f   p99 %10.2f   n %zu\n", r->label,
			       r->figures.median, r->figures.min, r->figures.p99, r->figures.n);
	}
	fflush(stdout);
}

/* Texts come from errors: quotes, backslashes and control characters become spaces. */
static void write_text(const char *text, FILE *f)
{
	fputc('"', f);
	for (; *text; text++)
		fputc(*text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? ' ' : *text, f);
	fputc('"', f);
}

static void write_way(const struct result *r, FILE *f)
{
	fprintf(f, "     {\"way\": \"%s\", \"label\": \"%s\", ", r->way, r->label);
	if (r->figures.n) {
		fprintf(f, "\"n\": %zu, \"min\": %.4f, \"median\": %.4f, \"p99\": %.4f}",
			r->figures.n, r->figures.min, r->figures.median, r->figures.p99);
		return;
	}
	fprintf(f, "\"error\": ");
	write_text(r->error, f);
	fputc('}', f);
}

static void write_row(const struct comparison *c, FILE *f)
{
	static const char *const words[] = { [REACH_NOTHING] = "nothing",
					     [REACH_RATIO] = "ratio at most",
					     [REACH_RATE] = "ratio at least",
					     [REACH_DIFFERENCE] = "difference at most",
					     [REACH_VALUE] = "value at most" };
	double v = judged(c);

	fprintf(f,
		"   {\"id\": \"%s\", \"what\": \"%s\", \"unit\": \"%s\", \"wanted\": \"%s\", "
		"\"bound\": %g, \"beside\": \"%s\", ",
		c->id, c->what, c->unit, words[c->reach], c->bound, c->beside);
	fprintf(f, isnan(v) ? "\"judged\": null, " : "\"judged\": %.4f, ", v);
	fprintf(f, "\"reached\": %s, \"ways\": [\n", reached(c) ? "true" : "false");
	for (size_t i = 0; i < c->n_ways; i++) {
		write_way(&c->ways[i], f);
		fputs(i + 1 < c->n_ways ? ",\n" : "]}", f);
	}
}

void report_write(const struct report *r, FILE *f)
{
	struct utsname u;

	uname(&u);
	fprintf(f, "{\"gpushm\": \"%s\", \"kernel\": \"%s\", \"cores\": %ld, \"gpu\": \"%s\"",
		gpushm_version(), u.release, sysconf(_SC_NPROCESSORS_ONLN), r->gpu ? r->gpu : "");
	fprintf(f, ", \"fake\": %s, \"mps\": %s, \"quick\": %s,\n \"rows\": [\n",
		r->fake ? "true" : "false", r->mps ? "true" : "false", r->quick ? "true" : "false");
	for (size_t i = 0; i < r->n; i++) {
		write_row(&r->all[i], f);
		fputs(i + 1 < r->n ? ",\n" : "\n", f);
	}
	fprintf(f, "]}\n");
}
