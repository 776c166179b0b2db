/* SPDX-License-Identifier: MIT
 *
 * A table for people: cells are added row by row, then printed in aligned columns.
 */
#ifndef GPUSHM_CLIENT_CTL_GRID_H
#define GPUSHM_CLIENT_CTL_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum grid_style { GRID_PLAIN, GRID_BOLD, GRID_GOOD, GRID_WARN, GRID_BAD, GRID_DIM };

struct grid;

/* columns: titles divided by spaces; one that starts with '>' is aligned to the right. "": a grid
 * of two columns without titles. NULL without memory. */
struct grid *grid_new(const char *columns);
struct grid *grid_free(struct grid *g);

/* The next cell, left to right, then the next row. The text is escaped. Without memory the grid
 * remembers that, and grid_print() fails. */
void grid_cell(struct grid *g, enum grid_style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* 0 or -ENOMEM. */
int grid_print(const struct grid *g, bool colour, FILE *out);

/* The escape sequence that begins a style; grid_style_end ends it. */
extern const char *const grid_styles[];
extern const char grid_style_end[];

#endif
