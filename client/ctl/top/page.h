/* SPDX-License-Identifier: MIT
 *
 * Lines of text with styles, which fit a width: for the terminal's screen and for a pipe. Text is
 * escaped when it is added.
 */
#pragma once

#include "client/ctl/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A piece of a line that has one style. */
struct run {
	enum table_style style;
	size_t len; /* bytes of the text */
};

struct line {
	char *text; /* owned; valid UTF-8 without unsafe characters */
	size_t len, columns;
	struct run *runs; /* owned */
	size_t n_runs;
	bool marked; /* it is shown in reverse */
};

struct page {
	size_t width;	    /* columns; 0: no limit */
	struct line *lines; /* owned */
	size_t n;
	bool failed; /* memory ran out */
};

void page_init(struct page *p, size_t width);
void page_done(struct page *p);

/* Begins a line. What does not fit its width is left out. */
void page_line(struct page *p);

/* Adds text to the last line. */
void page_add(struct page *p, enum table_style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Adds text that is escaped already, in so many columns: it is shortened, or filled up with spaces
 * at its right, or at its left. */
void page_cell(struct page *p, enum table_style style, const char *escaped, size_t columns,
	       bool right);

/* Adds spaces up to this column of the line. */
void page_fill(struct page *p, size_t column);

/* Marks the last line. */
void page_mark(struct page *p);

/* Takes a line out of another page; its owner sees an empty one. */
void page_move(struct page *p, struct line *from);

/* Cuts the page after so many lines. */
void page_cut(struct page *p, size_t lines);

/* Prints the lines, without spaces at their ends. */
void page_print(const struct page *p, bool colour, FILE *out);
