/* SPDX-License-Identifier: MIT
 *
 * How a fault is filled in. The text is cut where it does not fit, but never inside a UTF-8
 * sequence, because it goes to terminals and into JSON. Nothing is owned, nothing is logged.
 */
#include "proto/fault.h"

#include "proto/name.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fault(struct fault *f, enum code code, const char *format, ...)
{
	va_list args;

	assert(code != CODE_OK);

	f->code = code;
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
	f->text[name_cut(f->text, strlen(f->text))] = '\0';

	return -code_to_errno(code);
}
