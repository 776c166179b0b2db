/* SPDX-License-Identifier: MIT
 *
 * Text is measured in columns of a terminal, as a name may be in any script. The table keeps all
 * cells, since the widths are known only after the last one; a column that is too wide for the
 * terminal is shortened or wrapped while it is printed. If the output is no terminal, everything is
 * printed; scripts that need a fixed form have --json.
 */
#include "client/ctl/table.h"

#include "client/ctl/output.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#define SEPARATOR_LEN 2u
#define COLUMNS_MAX 16u
#define WRAPPED_MIN 8u /* a narrower column cannot be read */
#define SHORTENED_MIN 12u
#define NAME_GOOD 24u	     /* a name gets so much before a column is left out */
#define TERMINAL_DEFAULT 80u /* columns of a terminal that does not know its size */

struct column {
	size_t width;
	char mark;     /* '~', '|', '>' or 0 */
	unsigned rank; /* 0: never left out */
	bool hidden;
};

struct cell {
	char *text; /* owned */
	enum table_style style;
};

struct table {
	struct column columns[COLUMNS_MAX];
	size_t n_columns;
	struct cell *cells; /* owned; row by row, the titles first */
	size_t n_cells;
	bool failed; /* memory ran out */
};

static const char *const styles[] = {
	"", "\033[1m", "\033[32m", "\033[33m", "\033[31m", "\033[2m"
};
static const char style_end[] = "\033[0m";

static void free_table(struct table **t)
{
	*t = table_free(*t);
}

struct table *table_free(struct table *t)
{
	if (t)
		for (size_t i = 0; i < t->n_cells; i++)
			free(t->cells[i].text);
	if (t)
		free(t->cells);
	free(t);
	return NULL;
}

/* Takes the text over, which is escaped; NULL: memory ran out. */
static bool add_cell(struct table *t, enum table_style style, char *text)
{
	struct column *c = &t->columns[t->n_cells % t->n_columns];
	_cleanup_(free_ptr) char *escaped = text;
	struct cell *grown = grow(t->cells, t->n_cells, sizeof(*grown));
	size_t width;

	if (grown)
		t->cells = grown;
	if (!escaped || !grown)
		return false;
	width = output_columns(escaped);
	if (c->width < width)
		c->width = width;
	t->cells[t->n_cells++] = (struct cell){ take_ptr(escaped), style };
	return true;
}

void table_cell(struct table *t, enum table_style style, const char *format, ...)
{
	va_list ap;

	if (!t || t->failed)
		return;
	va_start(ap, format);
	t->failed = !add_cell(t, style, output_format(format, ap));
	va_end(ap);
}

static void add_title(struct table *t, const char *title, size_t len)
{
	char *text = strndup(title, len);

	for (char *c = text; c && *c; c++)
		if (*c == '_')
			*c = ' ';
	t->failed |= !add_cell(t, TABLE_BOLD, text);
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

struct table *table_new(const char *columns)
{
	_cleanup_(free_table) struct table *t = calloc(1, sizeof(*t));
	const char *title;
	size_t len;

	if (!t)
		return NULL;
	for (title = *columns ? columns : "- |"; *title; title += len + strspn(title + len, " ")) {
		if (t->n_columns == COLUMNS_MAX)
			return NULL;
		title = read_marks(title, &t->columns[t->n_columns++]);
		len = strcspn(title, " ");
	}
	for (title = columns; *title; title += len + strspn(title + len, " ")) {
		title = read_marks(title, &(struct column){ 0 });
		len = strcspn(title, " ");
		add_title(t, title, len);
	}
	return take_ptr(t);
}

/* ---- widths ---- */

/* The width that a column needs, with its separator. */
static size_t needed_width(const struct column *c)
{
	size_t least = c->mark == '~' ? NAME_GOOD : c->mark == '|' ? WRAPPED_MIN : c->width;

	return (c->width < least ? c->width : least) + SEPARATOR_LEN;
}

static size_t terminal_columns(int fd)
{
	const char *variable = getenv("COLUMNS");
	int columns = variable ? atoi(variable) : 0;
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	return columns > 0 ? (size_t)columns : TERMINAL_DEFAULT;
}

/* Gives a column of names or of prose the width that the others leave, and at least `least`.
 * Returns the total, with what the column has got. */
static size_t narrow(struct column *c, size_t total, size_t room, size_t least)
{
	size_t others = total - needed_width(c) + SEPARATOR_LEN;
	size_t width = room > others + least ? room - others : least;

	if (c->width > width)
		c->width = width;
	return others + c->width;
}

void table_fit(struct table *t, size_t columns)
{
	size_t total = 0, room = columns + SEPARATOR_LEN; /* the last one is not printed */
	struct column *end;

	if (!t)
		return;
	end = t->columns + t->n_columns;
	for (struct column *c = t->columns; c < end; c++)
		total += needed_width(c);
	for (unsigned rank = 1; total > room && rank <= 9; rank++)
		for (struct column *c = t->columns; c < end; c++)
			if (c->rank == rank) {
				c->hidden = true;
				total -= needed_width(c);
			}
	for (struct column *c = t->columns; c < end; c++)
		if (c->hidden)
			continue;
		else if (c->mark == '~')
			total = narrow(c, total, room, SHORTENED_MIN);
		else if (c->mark == '|' && total <= room)
			total = narrow(c, total, room, WRAPPED_MIN);
}

/* ---- printing ---- */

/* Returns the part of the text that a line of the column shows, malloc'd, and moves *text behind
 * it: prose is cut between words, if it has any. */
static char *cut_line(const struct column *c, const char **text)
{
	const char *start = *text;
	size_t len = strlen(start), fits = c->mark == '|' ? output_fit(start, c->width) : len, n;

	if (fits < len) {
		for (n = fits; n > 0 && start[n] != ' '; n--)
			;
		len = n > 0 ? n : fits;
	}
	*text = start + len + strspn(start + len, " ");
	return c->mark == '~' ? output_shorten(start, c->width) : strndup(start, len);
}

static void print_styled(FILE *out, unsigned flags, enum table_style style, const char *text)
{
	bool styled = flags & TABLE_COLOUR && style != TABLE_PLAIN;

	fprintf(out, "%s%s%s", styled ? styles[style] : "", text, styled ? style_end : "");
}

void table_text(FILE *out, unsigned flags, enum table_style style, const char *format, ...)
{
	_cleanup_(free_ptr) char *escaped = NULL;
	va_list ap;

	va_start(ap, format);
	escaped = output_format(format, ap);
	va_end(ap);
	print_styled(out, flags, style, escaped ? escaped : "out of memory");
}

/* Prints one line of a row; texts[i] is what column i still has to show. False: out of memory. */
static bool print_line(const struct table *t, const struct cell *row, const char **texts,
		       unsigned flags, FILE *out)
{
	size_t gap = 0; /* before the next text, so that no line ends in spaces */

	for (size_t i = 0; i < t->n_columns; i++) {
		const struct column *c = &t->columns[i];
		_cleanup_(free_ptr) char *text = NULL;
		size_t width, pad;

		if (c->hidden)
			continue;
		text = cut_line(c, &texts[i]);
		if (!text)
			return false;
		width = output_columns(text);
		pad = c->width > width ? c->width - width : 0;
		if (c->mark == '>')
			gap += pad;
		if (*text) {
			fprintf(out, "%*s", (int)gap, "");
			print_styled(out, flags, row[i].style, text);
			gap = 0;
		}
		gap += SEPARATOR_LEN + (c->mark == '>' ? 0 : pad);
	}
	putc('\n', out);
	return true;
}

static bool has_more(const struct table *t, const char **texts)
{
	for (size_t i = 0; i < t->n_columns; i++)
		if (!t->columns[i].hidden && *texts[i])
			return true;
	return false;
}

static bool print_row(const struct table *t, const struct cell *row, unsigned flags, FILE *out)
{
	const char *texts[COLUMNS_MAX];

	for (size_t i = 0; i < t->n_columns; i++)
		texts[i] = row[i].text;
	do {
		if (!print_line(t, row, texts, flags, out))
			return false;
	} while (has_more(t, texts));
	return true;
}

int table_print(struct table *t, unsigned flags, FILE *out)
{
	bool good = t && !t->failed;

	if (good && !(flags & TABLE_WIDE) && isatty(fileno(out)))
		table_fit(t, terminal_columns(fileno(out)));
	for (size_t i = 0; good && i + t->n_columns <= t->n_cells; i += t->n_columns)
		good = print_row(t, t->cells + i, flags, out);
	table_free(t);
	return good ? 0 : -ENOMEM;
}
