/* SPDX-License-Identifier: MIT
 *
 * The result as two pictures: latencies, each beside its floor, on a logarithmic axis since they
 * lie orders of magnitude apart; and how an attach takes ever more buffers and clients.
 */
#include "proto/base/own.h"
#include "tests/bench/bench.h"
#include "tests/bench/gpu.h"
#include "tests/bench/svg.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- latencies ---- */

#define LABELS 330.0 /* points, left of the bars */
#define BARS 420.0
#define VALUES 110.0 /* right of them */
#define ROW 34.0
#define TOP 46.0

static bool is_latency(const struct row *row)
{
	return strcmp(row->unit, "us") == 0 && row->floor.n && !row->series[0] &&
	       strcmp(row->id, "rate_cpu") != 0;
}

/* A decade under the smallest floor, and one that holds the largest. */
static void find_decades(const struct rows *r, double *low, double *high)
{
	*low = 10;
	*high = 1;
	for (size_t i = 0; i < r->n; i++) {
		if (!is_latency(&r->all[i]))
			continue;
		*low = fmin(*low, floor(log10(r->all[i].floor.median)));
		*high = fmax(*high, ceil(log10(r->all[i].ours.median)));
	}
}

static double along(double us, double low, double high)
{
	return BARS * (log10(us) - low) / (high - low);
}

static void draw_decades(FILE *f, double low, double high, double bottom)
{
	for (double d = low; d <= high; d++) {
		double x = LABELS + along(pow(10, d), low, high);
		char text[32];

		if (d < 3)
			snprintf(text, sizeof(text), "%g us", pow(10, d));
		else
			snprintf(text, sizeof(text), "%g ms", pow(10, d - 3));
		svg_line(f, x, TOP - 6, x, bottom, 1, SVG_GRID);
		svg_text(f, x, TOP - 12, SVG_MIDDLE, SVG_TEXT, text);
	}
}

static void draw_latency(FILE *f, const struct row *row, double y, double low, double high)
{
	char text[64];

	svg_text(f, LABELS - 10, y + 18, SVG_END, SVG_TEXT, row->what);
	svg_bar(f, LABELS, y + 4, along(row->floor.median, low, high), 10, SVG_LIGHT);
	svg_bar(f, LABELS, y + 15, along(row->ours.median, low, high), 10, SVG_DARK);
	snprintf(text, sizeof(text), "%.3g us, %.2f x", row->ours.median, row_judged(row));
	svg_text(f, LABELS + along(row->ours.median, low, high) + 6, y + 22, SVG_START, SVG_TEXT,
		 text);
}

static void draw_legend(const struct bench *b, FILE *f)
{
	svg_bar(f, 10, 10, 10, 10, SVG_DARK);
	svg_text(f, 26, 19, SVG_START, SVG_TEXT, "gpushm");
	svg_bar(f, 90, 10, 10, 10, SVG_LIGHT);
	svg_text(f, 106, 19, SVG_START, SVG_TEXT, "the calls alone");
	svg_text(f, 210, 19, SVG_START, SVG_TEXT,
		 b->gpu && gpu_is_fake() ? "NO REAL GPU" : (b->gpu ? gpu_name() : ""));
}

static void plot_latencies(const struct bench *b, const char *folder)
{
	double low, high, y = TOP;
	size_t n = 0;
	FILE *f;

	for (size_t i = 0; i < b->rows.n; i++)
		n += is_latency(&b->rows.all[i]);
	if (n == 0)
		return;
	f = svg_open(folder, "latency.svg", LABELS + BARS + VALUES, TOP + ROW * (double)n + 10);
	if (!f)
		ck_abort_msg("%s/latency.svg: %s", folder, strerror(errno));
	find_decades(&b->rows, &low, &high);
	draw_legend(b, f);
	draw_decades(f, low, high, TOP + ROW * (double)n);
	for (size_t i = 0; i < b->rows.n; i++) {
		if (!is_latency(&b->rows.all[i]))
			continue;
		draw_latency(f, &b->rows.all[i], y, low, high);
		y += ROW;
	}
	svg_close(f);
}

/* ---- scaling ---- */

#define PANEL 360.0
#define HEIGHT 220.0
#define MARGIN 50.0

struct panel {
	FILE *f;
	double left, x_low, x_high, y_high;
};

static double panel_x(const struct panel *p, double x)
{
	return p->left + PANEL * (log10(x) - p->x_low) / (p->x_high - p->x_low);
}

static double panel_y(const struct panel *p, double y)
{
	return MARGIN + HEIGHT * (1 - y / p->y_high);
}

static void draw_frame(const struct panel *p, const char *of)
{
	char text[64];

	for (int i = 0; i <= 4; i++) {
		double v = p->y_high * i / 4;

		snprintf(text, sizeof(text), "%.3g", v);
		svg_line(p->f, p->left, panel_y(p, v), p->left + PANEL, panel_y(p, v), 1, SVG_GRID);
		svg_text(p->f, p->left - 6, panel_y(p, v) + 4, SVG_END, SVG_TEXT, text);
	}
	for (double d = ceil(p->x_low); d <= p->x_high; d++) {
		snprintf(text, sizeof(text), "%g", pow(10, d));
		svg_text(p->f, panel_x(p, pow(10, d)), MARGIN + HEIGHT + 18, SVG_MIDDLE, SVG_TEXT,
			 text);
	}
	snprintf(text, sizeof(text), "attach + close, us, by %s", of);
	svg_text(p->f, p->left + PANEL / 2, MARGIN - 16, SVG_MIDDLE, SVG_TEXT, text);
}

static void draw_curve(const struct panel *p, const struct rows *r, const char *series)
{
	double x = NAN, y = NAN;

	for (size_t i = 0; i < r->n; i++) {
		const struct row *row = &r->all[i];

		if (strcmp(row->series, series) != 0)
			continue;
		/* The first point is what all others are held against. */
		if (isnan(x)) {
			x = panel_x(p, pow(10, p->x_low));
			y = panel_y(p, row->floor.median);
			svg_dot(p->f, x, y, SVG_DARK);
		}
		svg_line(p->f, x, y, panel_x(p, row->x), panel_y(p, row->ours.median), 2, SVG_DARK);
		x = panel_x(p, row->x);
		y = panel_y(p, row->ours.median);
		svg_dot(p->f, x, y, SVG_DARK);
	}
}

static void plot_series(FILE *f, double left, const struct rows *r, const char *series,
			double first)
{
	struct panel p = { f, left, log10(first), log10(first) + 1, 0 };

	for (size_t i = 0; i < r->n; i++) {
		if (strcmp(r->all[i].series, series) != 0)
			continue;
		p.x_high = fmax(p.x_high, log10(r->all[i].x));
		p.y_high = fmax(p.y_high, 1.5 * r->all[i].ours.median);
	}
	if (p.y_high == 0)
		return;
	p.y_high = ceil(p.y_high / 4) * 4;
	draw_frame(&p, series);
	draw_curve(&p, r, series);
}

void plot_write(const struct bench *b, const char *folder)
{
	const double width = PANEL + 2 * MARGIN; /* of one panel */
	FILE *f;

	plot_latencies(b, folder);
	f = svg_open(folder, "scaling.svg", (b->gpu ? 3 : 2) * width, HEIGHT + 2 * MARGIN);
	if (!f)
		ck_abort_msg("%s/scaling.svg: %s", folder, strerror(errno));
	plot_series(f, MARGIN, &b->rows, "buffers", 10);
	plot_series(f, MARGIN + width, &b->rows, "clients", 2);
	plot_series(f, MARGIN + 2 * width, &b->rows, "mempool buffers", 10);
	svg_close(f);
}
