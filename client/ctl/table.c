/* SPDX-License-Identifier: MIT
 *
 * Tables by util-linux's libsmartcols, which measures text in terminal columns (a name may be in
 * any script) and wraps it to fit the terminal. If the output is no terminal, or one that is too
 * narrow for any wrapping, nothing is wrapped; scripts that need a fixed form have --json.
 * The library would escape text in its own way, which lets some marks pass, so it gets text that
 * is escaped already and leaves it alone.
 */
#include "client/ctl/table.h"

#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <string.h>

#define SEPARATOR "  "
#define WRAPPED_MIN 8 /* a narrower column cannot be read */

struct table {
	struct libscols_table *scols; /* owned */
	struct libscols_line *line;   /* the last one; borrowed from scols */
	size_t next;		      /* the next cell's column */
	bool failed;		      /* memory ran out */
};

const char *const table_styles[] = { "", "\033[1m", "\033[32m", "\033[33m", "\033[31m", "\033[2m" };
const char table_style_end[] = "\033[0m";

static void free_table(struct table **t)
{
	*t = table_free(*t);
}

struct table *table_free(struct table *t)
{
	if (t)
		scols_unref_table(t->scols);
	free(t);
	return NULL;
}

static bool add_cell(struct table *t, enum table_style style, const char *text, size_t len)
{
	_cleanup_(free_ptr) char *escaped = output_escape(text, len);
	struct libscols_cell *cell;

	if (t->next == 0)
		t->line = scols_table_new_line(t->scols, NULL);
	cell = t->line ? scols_line_get_cell(t->line, t->next) : NULL;
	if (!escaped || !cell || scols_cell_refer_data(cell, escaped) < 0)
		return false;
	escaped = NULL; /* it is the cell's */
	t->next = (t->next + 1) % scols_table_get_ncols(t->scols);
	return style == TABLE_PLAIN || scols_cell_set_color(cell, table_styles[style]) == 0;
}

void table_cell(struct table *t, enum table_style style, const char *format, ...)
{
	_cleanup_(free_ptr) char *text = NULL;
	va_list ap;
	int n;

	if (!t || t->failed)
		return;
	va_start(ap, format);
	n = vasprintf(&text, format, ap);
	va_end(ap);
	if (n < 0)
		text = NULL;
	t->failed = !text || !add_cell(t, style, text, (size_t)n);
}

/* The titles are the first row: libsmartcols prints no heading where there are no lines. */
struct table *table_new(const char *columns)
{
	_cleanup_(free_table) struct table *t = calloc(1, sizeof(*t));
	const char *title = columns;
	size_t len;

	if (t)
		t->scols = scols_new_table();
	if (!t || !t->scols || scols_table_set_column_separator(t->scols, SEPARATOR) < 0)
		return NULL;
	scols_table_enable_noencoding(t->scols, 1);
	scols_table_enable_noheadings(t->scols, 1);
	scols_table_enable_minout(t->scols, 1);
	for (title = *columns ? columns : "- ~"; *title; title += len + strspn(title + len, " ")) {
		len = strcspn(title, " ");
		if (!scols_table_new_column(t->scols, NULL, 0,
					    *title == '>'   ? SCOLS_FL_RIGHT
					    : *title == '~' ? SCOLS_FL_WRAP
							    : 0))
			return NULL;
	}
	for (title = columns; *title; title += len + strspn(title + len, " ")) {
		title += *title == '>' || *title == '~';
		len = strcspn(title, " ");
		table_cell(t, TABLE_BOLD, "%.*s", (int)len, title);
	}
	return take_ptr(t);
}

/* Whether the terminal is wide enough, with text wrapped. The library knows the widths when it has
 * printed the table. */
static bool fits(struct libscols_table *s)
{
	_cleanup_(free_ptr) char *text = NULL;
	size_t total = 0, columns = scols_table_get_ncols(s);

	scols_table_set_termforce(s, SCOLS_TERMFORCE_NEVER);
	if (scols_print_table_to_string(s, &text) < 0)
		return false;
	for (size_t i = 0; i < columns; i++) {
		struct libscols_column *c = scols_table_get_column(s, i);
		size_t width = scols_column_get_width(c);

		if (scols_column_is_wrap(c) && width > WRAPPED_MIN)
			width = WRAPPED_MIN;
		total += width + strlen(SEPARATOR);
	}
	return total <= scols_table_get_termwidth(s) + strlen(SEPARATOR);
}

int table_print(struct table *t, bool colour, FILE *out)
{
	int r = -ENOMEM;

	if (t && !t->failed) {
		bool wrap = isatty(fileno(out)) && fits(t->scols);

		scols_table_set_stream(t->scols, out);
		scols_table_enable_colors(t->scols, colour);
		scols_table_set_termforce(t->scols,
					  wrap ? SCOLS_TERMFORCE_ALWAYS : SCOLS_TERMFORCE_NEVER);
		r = scols_print_table(t->scols);
	}
	table_free(t);
	return r;
}
