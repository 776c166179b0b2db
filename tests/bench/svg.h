/* SPDX-License-Identifier: MIT
 *
 * The few shapes that a picture is made of.
 */
#ifndef GPUSHM_TESTS_BENCH_SVG_H
#define GPUSHM_TESTS_BENCH_SVG_H

#include <stdio.h>

#define SVG_DARK "#1f5fa8"
#define SVG_LIGHT "#b9c4d0"
#define SVG_RED "#b3261e"
#define SVG_TEXT "#222222"
#define SVG_GRID "#e4e7eb"

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

/* A white page of that many points; NULL with errno if the file can't be made. */
FILE *svg_open(const char *folder, const char *name, double width, double height);
void svg_close(FILE *f);

void svg_text(FILE *f, double x, double y, enum svg_anchor anchor, const char *colour,
	      const char *text);
void svg_bar(FILE *f, double x, double y, double width, double height, const char *colour);
void svg_line(FILE *f, double x1, double y1, double x2, double y2, double width,
	      const char *colour);
void svg_dot(FILE *f, double x, double y, const char *colour);

#endif
