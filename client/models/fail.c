/* SPDX-License-Identifier: MIT
 *
 * The text of an error is made printable, and stored where gpushm_error() finds it.
 */
#include "client/models/fail.h"

#include "client/gpushm_private.h"
#include "proto/base/sized.h"
#include "proto/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int load_fail(int number, const char *format, ...)
{
	char text[sizeof((struct gpushm_private_error){ .code = NULL }.text)];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	utf8_make_printable(text);
	return gpushm_private_fail(number, "%s", text);
}

int load_format(char **ret, const char *format, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, format);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	*ret = n < 0 ? NULL : malloc((size_t)n + 1);
	if (*ret)
		vsnprintf(*ret, (size_t)n + 1, format, again);
	va_end(again);
	return *ret ? 0 : load_no_memory();
}

int load_read_struct(const char *what, const void *from, void *ret, size_t known)
{
	const char *wrong = sized_read(from, ret, known);

	return wrong ? load_fail(EINVAL, "%s: %s", what, wrong) : 0;
}

int load_check_report(const struct gpushm_load_report *report)
{
	if (!report || (report->struct_size >= SIZED_MIN && report->struct_size <= SIZED_MAX))
		return 0;
	return load_fail(EINVAL, "the report: struct_size is not set");
}

void load_write_report(struct gpushm_load_report *ret, const struct gpushm_load_report *report)
{
	if (ret)
		sized_write(ret, report, sizeof(*report));
}
