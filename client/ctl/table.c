/* SPDX-License-Identifier: MIT
 *
 * Tables by util-linux's libsmartcols, which measures text in terminal columns (a name may be in
 * any script) and wraps prose. It can cut text at the end only, so names are shortened here. If the
 * output is no terminal, everything is printed; scripts that need a fixed form have --json.
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
#define SEPARATOR_LEN 2u
#define COLUMNS_MAX 16u
#define WRAPPED_MIN 8u /* a narrower column cannot be read */
#define SHORTENED_MIN 12u
#define NAME_GOOD 32u /* a name gets so much before a column is left out */

struct column {
	struct libscols_column *scols; /* borrowed */
	char mark;		       /* '~', '|', '>' or 0 */
	unsigned rank;		       /* 0: never left out */
};

struct table {
	struct libscols_table *scols; /* owned */
	struct libscols_line *line;   /* the last one; borrowed from scols */
	struct column columns[COLUMNS_MAX];
	size_t n_columns;
	size_t next; /* the next cell's column */
	bool failed; /* memory ran out */
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

/* Reads the marks before a title. */
static const char *read_marks(const char *title, struct column *ret)
{
	if (*title >= '1' && *title <= '9')
		ret->rank = (unsigned)(*title++ - '0');
	if (*title == '>' || *title == '~' || *title == '|')
		ret->mark = *title++;
	return title;
}

static bool add_column(struct table *t, const struct column *c)
{
	struct column *new = &t->columns[t->n_columns];

	if (t->n_columns == COLUMNS_MAX)
		return false;
	*new = *c;
	new->scols = scols_table_new_column(t->scols, NULL, 0,
					    c->mark == '>'   ? SCOLS_FL_RIGHT
					    : c->mark == '|' ? SCOLS_FL_WRAP
							     : 0);
	t->n_columns++;
	return new->scols != NULL;
}

/* The titles are the first row: libsmartcols prints no heading where there are no lines. */
struct table *table_new(const char *columns)
{
	_cleanup_(free_table) struct table *t = calloc(1, sizeof(*t));
	const char *title;
	size_t len;

	if (t)
		t->scols = scols_new_table();
	if (!t || !t->scols || scols_table_set_column_separator(t->scols, SEPARATOR) < 0)
		return NULL;
	scols_table_enable_noencoding(t->scols, 1);
	scols_table_enable_noheadings(t->scols, 1);
	scols_table_enable_minout(t->scols, 1);
	for (title = *columns ? columns : "- |"; *title; title += len + strspn(title + len, " ")) {
		struct column c = { 0 };

		title = read_marks(title, &c);
		len = strcspn(title, " ");
		if (!add_column(t, &c))
			return NULL;
	}
	for (title = columns; *title; title += len + strspn(title + len, " ")) {
		title = read_marks(title, &(struct column){ 0 });
		len = strcspn(title, " ");
		table_cell(t, TABLE_BOLD, "%.*s", (int)len, title);
	}
	return take_ptr(t);
}

/* The width that a column needs, with its separator. The library knows the widths once it has
 * printed the table. */
static size_t needed_width(const struct column *c)
{
	size_t width = scols_column_get_width(c->scols);
	size_t least = c->mark == '~' ? NAME_GOOD : c->mark == '|' ? WRAPPED_MIN : width;

	return (width < least ? width : least) + SEPARATOR_LEN;
}

/* By an iterator: scols_table_get_line() walks the list of lines each time. */
static bool shorten_column(struct table *t, size_t column, size_t width)
{
	struct libscols_iter *lines = scols_new_iter(SCOLS_ITER_FORWARD);
	struct libscols_line *line;
	bool good = lines != NULL;

	while (good && scols_table_next_line(t->scols, lines, &line) == 0) {
		struct libscols_cell *cell = scols_line_get_cell(line, column);
		const char *text = scols_cell_get_data(cell);
		char *shorter = text ? output_shorten(text, width) : NULL;

		good = !text || (shorter && scols_cell_refer_data(cell, shorter) == 0);
	}
	scols_free_iter(lines);
	return good;
}

/* The width that the other columns leave. */
static size_t name_width(const struct column *c, size_t total, size_t room)
{
	size_t others = total - needed_width(c) + SEPARATOR_LEN;

	return room > others + SHORTENED_MIN ? room - others : SHORTENED_MIN;
}

/* Makes the table as narrow as the terminal, if it can. False: memory ran out. */
static bool fit(struct table *t)
{
	_cleanup_(free_ptr) char *text = NULL;
	size_t total = 0, room;

	if (scols_print_table_to_string(t->scols, &text) < 0)
		return false;
	room = scols_table_get_termwidth(t->scols) +
	       SEPARATOR_LEN; /* the last one is not printed */
	for (size_t i = 0; i < t->n_columns; i++)
		total += needed_width(&t->columns[i]);
	for (unsigned rank = 1; total > room && rank <= 9; rank++)
		for (size_t i = 0; i < t->n_columns; i++)
			if (t->columns[i].rank == rank) {
				scols_column_set_flags(t->columns[i].scols, SCOLS_FL_HIDDEN);
				total -= needed_width(&t->columns[i]);
			}
	for (size_t i = 0; i < t->n_columns; i++) {
		const struct column *c = &t->columns[i];

		if (c->mark == '~' && !shorten_column(t, i, name_width(c, total, room)))
			return false;
		if (c->mark == '|' && total <= room)
			scols_table_set_termforce(t->scols, SCOLS_TERMFORCE_ALWAYS);
	}
	return true;
}

int table_print(struct table *t, unsigned flags, FILE *out)
{
	int r = -ENOMEM;

	if (t && !t->failed) {
		/* Else the library would wrap by itself. */
		scols_table_set_termforce(t->scols, SCOLS_TERMFORCE_NEVER);
		if ((flags & TABLE_WIDE) || !isatty(fileno(out)) || fit(t)) {
			scols_table_set_stream(t->scols, out);
			scols_table_enable_colors(t->scols, flags & TABLE_COLOUR);
			r = scols_print_table(t->scols);
		}
	}
	table_free(t);
	return r;
}
