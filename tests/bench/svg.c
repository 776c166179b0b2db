/* SPDX-License-Identifier: MIT
 *
 * SVG 1.1.
 */
#include "tests/bench/svg.h"

#include <limits.h>

FILE *svg_open(const char *folder, const char *name, double width, double height)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "we");
	if (!f)
		return NULL;
	fprintf(f,
		"<!-- SPDX-License-Identifier: MIT -->\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
		"viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		width, height, width, height);
	return f;
}

void svg_close(FILE *f)
{
	fputs("</svg>\n", f);
	fclose(f);
}

void svg_text(FILE *f, double x, double y, enum svg_anchor anchor, const char *colour,
	      const char *text)
{
	static const char *const anchors[] = { "start", "middle", "end" };

	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y,
		anchors[anchor], colour);
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		default:
			fputc(*text, f);
		}
	fputs("</text>\n", f);
}

void svg_bar(FILE *f, double x, double y, double width, double height, const char *colour)
{
	fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x,
		y, width, height, colour);
}

void svg_line(FILE *f, double x1, double y1, double x2, double y2, double width, const char *colour)
{
	fprintf(f,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
		"stroke-width=\"%g\"/>\n",
		x1, y1, x2, y2, colour, width);
}

void svg_dot(FILE *f, double x, double y, const char *colour)
{
	fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y, colour);
}
