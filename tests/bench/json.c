/* SPDX-License-Identifier: MIT
 *
 * The result for programs. Its only foreign text is the name of the GPU, which needs no escaping.
 */
#include "tests/bench/bench.h"

#include "tests/bench/gpu.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

static void write_figures(const char *key, const struct figures *v, FILE *f)
{
	if (v->n == 0)
		fprintf(f, ",\n     \"%s\": null", key);
	else
		fprintf(f,
			",\n     \"%s\": {\"n\": %zu, \"min\": %.4f, \"median\": %.4f, "
			"\"p99\": %.4f}",
			key, v->n, v->min, v->median, v->p99);
}

static void write_row(const struct row *row, FILE *f)
{
	static const char *const words[] = { [REACH_NOTHING] = "nothing",
					     [REACH_RATIO] = "ratio at most",
					     [REACH_RATE] = "ratio at least",
					     [REACH_DIFFERENCE] = "difference at most",
					     [REACH_VALUE] = "value at most" };

	fprintf(f, "    {\"id\": \"%s\", \"what\": \"%s\", \"unit\": \"%s\"", row->id, row->what,
		row->unit);
	write_figures("gpushm", &row->ours, f);
	write_figures("floor", &row->floor, f);
	fprintf(f, ",\n     \"floor_is\": \"%s\", \"judged\": %.4f", row->floor_is,
		row_judged(row));
	fprintf(f, ", \"wanted\": \"%s\", \"bound\": %g, \"reached\": %s", words[row->reach],
		row->at_most, row_reached(row) ? "true" : "false");
	if (row->series[0])
		fprintf(f, ", \"series\": \"%s\", \"x\": %g", row->series, row->x);
	fprintf(f, "}");
}

void json_write(const struct bench *b, FILE *f)
{
	struct utsname u;

	uname(&u);
	fprintf(f, "{\"gpushm\": \"%s\", \"kernel\": \"%s\", \"cores\": %ld, \"gpu\": \"%s\"",
		gpushm_version(), u.release, sysconf(_SC_NPROCESSORS_ONLN),
		b->gpu ? gpu_name() : "");
	fprintf(f, ", \"fake\": %s, \"quick\": %s,\n \"rows\": [\n",
		b->gpu && gpu_is_fake() ? "true" : "false", b->o.quick ? "true" : "false");
	for (size_t i = 0; i < b->rows.n; i++) {
		write_row(&b->rows.all[i], f);
		fputs(i + 1 < b->rows.n ? ",\n" : "\n", f);
	}
	fprintf(f, "]}\n");
}
