/* SPDX-License-Identifier: MIT
 *
 * Aligned columns. A grid owns its cells as escaped text and measures them in terminal columns,
 * not bytes: a name may be in any script. Lines carry no trailing blanks, and a cell is never cut:
 * scripts that want fixed forms have --json.
 */
#include "client/ctl/grid.h"

#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <stdarg.h>
#include <string.h>

#define COLUMNS_MAX 16

struct cell {
	char *text; /* owned */
	enum grid_style style;
};

struct grid {
	size_t columns;
	bool right[COLUMNS_MAX];
	struct cell *cells; /* owned */
	size_t n, room;
	bool failed; /* memory ran out */
};

const char *const grid_styles[] = { "", "\033[1m", "\033[32m", "\033[33m", "\033[31m", "\033[2m" };
const char grid_style_end[] = "\033[0m";

static bool grow(struct grid *g)
{
	size_t room = g->room ? 2 * g->room : 64;
	struct cell *cells;

	if (g->n < g->room)
		return true;
	cells = reallocarray(g->cells, room, sizeof(*cells));
	if (!cells)
		return false;
	g->cells = cells;
	g->room = room;
	return true;
}

static void add(struct grid *g, enum grid_style style, const char *text, size_t len)
{
	char *escaped;

	if (g->failed)
		return;
	escaped = grow(g) ? output_escape(text, len) : NULL;
	g->failed = !escaped;
	if (escaped)
		g->cells[g->n++] = (struct cell){ escaped, style };
}

struct grid *grid_new(const char *columns)
{
	struct grid *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	while (*columns && g->columns < COLUMNS_MAX) {
		size_t len = strcspn(columns, " ");
		bool right = *columns == '>';

		g->right[g->columns++] = right;
		add(g, GRID_BOLD, columns + right, len - right);
		columns += len + strspn(columns + len, " ");
	}
	if (!g->columns)
		g->columns = 2;
	return g;
}

struct grid *grid_free(struct grid *g)
{
	if (!g)
		return NULL;
	for (size_t i = 0; i < g->n; i++)
		free(g->cells[i].text);
	free(g->cells);
	free(g);
	return NULL;
}

void grid_cell(struct grid *g, enum grid_style style, const char *format, ...)
{
	_cleanup_(free_ptr) char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vasprintf(&text, format, ap);
	va_end(ap);
	if (n < 0) {
		text = NULL;
		g->failed = true;
		return;
	}
	add(g, style, text, (size_t)n);
}

/* Whether nothing follows the cell in its row. */
static bool is_last(const struct grid *g, size_t i)
{
	for (i++; i % g->columns && i < g->n; i++)
		if (g->cells[i].text[0])
			return false;
	return true;
}

static void print_cell(const struct grid *g, size_t i, size_t width, bool colour, FILE *out)
{
	const struct cell *c = &g->cells[i];
	bool styled = colour && c->style != GRID_PLAIN;
	int pad = (int)(width - output_width(c->text));

	if (g->right[i % g->columns])
		fprintf(out, "%*s", pad, "");
	fprintf(out, "%s%s%s", styled ? grid_styles[c->style] : "", c->text,
		styled ? grid_style_end : "");
	if (i % g->columns == g->columns - 1)
		fputc('\n', out);
	else if (!is_last(g, i))
		fprintf(out, "%*s", (g->right[i % g->columns] ? 0 : pad) + 2, "");
}

int grid_print(const struct grid *g, bool colour, FILE *out)
{
	size_t widths[COLUMNS_MAX] = { 0 };

	if (g->failed)
		return -ENOMEM;
	for (size_t i = 0; i < g->n; i++) {
		size_t w = output_width(g->cells[i].text);

		if (w > widths[i % g->columns])
			widths[i % g->columns] = w;
	}
	for (size_t i = 0; i < g->n; i++)
		print_cell(g, i, widths[i % g->columns], colour, out);
	return 0;
}
