/* SPDX-License-Identifier: MIT
 *
 * A table for people: cells are added row by row, then printed in aligned columns. On a terminal
 * whose lines are too short, names are shortened in the middle, columns of less interest are left
 * out, and prose continues on the next lines of its column.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

enum table_style {
	TABLE_PLAIN,
	TABLE_BOLD,
	TABLE_GOOD,
	TABLE_WARN,
	TABLE_BAD,
	TABLE_DIM,
};

struct table;

/* columns: titles separated by spaces; '_' in one is a space. Before a title a digit says that the
 * column may be left out, 1 first; then '>' aligns it to the right, '~' lets its text be shortened,
 * or '|' lets it wrap, in one column of the table. "": two columns without titles, of which the
 * second wraps. Without memory it returns NULL, which the other functions accept. */
struct table *table_new(const char *columns);
struct table *table_free(struct table *t);

/* The next cell, left to right, then the next row. The text is escaped. */
void table_cell(struct table *t, enum table_style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A row of a table of two columns: a bold key, and its value. */
#define table_fact(t, key, ...) (table_cell(t, TABLE_BOLD, "%s", key), table_cell(t, __VA_ARGS__))

enum table_flags {
	TABLE_COLOUR = 1,
	TABLE_WIDE = 2, /* everything, however short the terminal's lines are */
};

/* Makes the table as narrow as that, if it can; table_print() does it for a terminal. */
void table_fit(struct table *t, size_t columns);

/* Prints and frees the table. 0, or -ENOMEM: memory ran out here or before. */
int table_print(struct table *t, unsigned flags, FILE *out);

/* Prints text, escaped, in a style; of the flags, only TABLE_COLOUR counts. */
void table_text(FILE *out, unsigned flags, enum table_style style, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
