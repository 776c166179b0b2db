/* SPDX-License-Identifier: MIT
 *
 * A page is built from its first line to its last one, and each line from left to right. Widths are
 * columns of a terminal, as output_columns() counts them.
 */
#include "client/ctl/top/page.h"

#include "client/ctl/output.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <stdarg.h>
#include <string.h>

void page_init(struct page *p, size_t width)
{
	*p = (struct page){ .width = width };
}

static void free_lines(struct page *p, size_t from)
{
	for (size_t i = from; i < p->n; i++) {
		free(p->lines[i].text);
		free(p->lines[i].runs);
	}
}

void page_done(struct page *p)
{
	free_lines(p, 0);
	free(p->lines);
	*p = (struct page){ 0 };
}

void page_cut(struct page *p, size_t lines)
{
	if (lines >= p->n)
		return;
	free_lines(p, lines);
	/* Its capacity follows from the number: grow.h. */
	while (p->n > lines)
		p->n--;
}

void page_line(struct page *p)
{
	struct line *grown = grow(p->lines, p->n, sizeof(*grown));

	if (!grown) {
		p->failed = true;
		return;
	}
	p->lines = grown;
	p->lines[p->n++] = (struct line){ 0 };
}

void page_move(struct page *p, struct line *from)
{
	page_line(p);
	if (p->failed)
		return;
	p->lines[p->n - 1] = *from;
	*from = (struct line){ 0 };
}

/* The last line; NULL after a failure. */
static struct line *last(struct page *p)
{
	return p->failed || !p->n ? NULL : &p->lines[p->n - 1];
}

static bool append(struct line *l, enum table_style style, const char *text, size_t columns)
{
	size_t len = strlen(text);
	char *longer = realloc(l->text, l->len + len + 1);
	struct run *grown = grow(l->runs, l->n_runs, sizeof(*grown));

	if (longer)
		l->text = longer;
	if (grown)
		l->runs = grown;
	if (!longer || !grown)
		return false;
	memcpy(l->text + l->len, text, len + 1);
	l->runs[l->n_runs++] = (struct run){ style, len };
	l->len += len;
	l->columns += columns;
	return true;
}

/* Adds what fits the line. */
static void put(struct page *p, enum table_style style, const char *text)
{
	struct line *l = last(p);
	size_t space = l && p->width ? p->width - l->columns : SIZE_MAX;
	_cleanup_(free_ptr) char *shorter = NULL;

	if (!l || !*text || !space)
		return;
	if (output_columns(text) > space)
		text = shorter = output_cut(text, space);
	if (!text || !append(l, style, text, output_columns(text)))
		p->failed = true;
}

void page_add(struct page *p, enum table_style style, const char *format, ...)
{
	_cleanup_(free_ptr) char *escaped = NULL;
	va_list ap;

	va_start(ap, format);
	escaped = output_format(format, ap);
	va_end(ap);
	if (escaped)
		put(p, style, escaped);
	else
		p->failed = true;
}

static void put_spaces(struct page *p, size_t n)
{
	static const char spaces[] = "                                ";

	for (size_t step; n; n -= step) {
		step = n < sizeof(spaces) - 1 ? n : sizeof(spaces) - 1;
		put(p, TABLE_PLAIN, spaces + sizeof(spaces) - 1 - step);
	}
}

void page_fill(struct page *p, size_t column)
{
	const struct line *l = last(p);

	if (l && l->columns < column)
		put_spaces(p, column - l->columns);
}

void page_cell(struct page *p, enum table_style style, const char *escaped, size_t columns,
	       bool right)
{
	_cleanup_(free_ptr) char *text = columns ? output_shorten(escaped, columns) : NULL;
	size_t used = text ? output_columns(text) : 0;

	if (!columns)
		return;
	if (!text)
		p->failed = true;
	if (right)
		put_spaces(p, columns - used);
	put(p, style, text ? text : "");
	if (!right)
		put_spaces(p, columns - used);
}

void page_mark(struct page *p)
{
	if (last(p))
		last(p)->marked = true;
}

static void print_line(const struct line *l, bool colour, FILE *out)
{
	size_t at = 0, end = l->len;

	while (end && l->text[end - 1] == ' ')
		end--;
	for (size_t i = 0; i < l->n_runs && at < end; at += l->runs[i++].len) {
		const struct run *r = &l->runs[i];
		int n = (int)(at + r->len < end ? r->len : end - at);
		bool styled = colour && r->style != TABLE_PLAIN;

		fprintf(out, "%s%.*s%s", styled ? table_styles[r->style] : "", n, l->text + at,
			styled ? table_style_end : "");
	}
	fputc('\n', out);
}

void page_print(const struct page *p, bool colour, FILE *out)
{
	for (size_t i = 0; i < p->n; i++)
		print_line(&p->lines[i], colour, out);
}
