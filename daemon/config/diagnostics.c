/* SPDX-License-Identifier: MIT
 *
 * Tells what is wrong with a configuration file, one line for each fault, and counts. The text
 * quotes what stands in the file, so it is escaped: --check-config writes to a terminal.
 *
 * It never stops the reading: who complains goes on with the next line, so that one run finds
 * every fault in every file.
 */
#include "daemon/config/diagnostics.h"

#include "daemon/util/escape.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

void diagnostics_add(struct diagnostics *c, unsigned line, const char *format, ...)
{
	char text[1024], safe[4 * sizeof(text)], file[PATH_MAX + 16], where[16] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	escape(text, strlen(text), safe, sizeof(safe));
	escape(c->file, strlen(c->file), file, sizeof(file));
	if (line > 0)
		snprintf(where, sizeof(where), ":%u", line);
	fprintf(c->out, "%s%s: %s\n", file, where, safe);
	c->n++;
}
