/* SPDX-License-Identifier: MIT
 *
 * Fills in a fault. A text that does not fit is cut, but never inside a UTF-8 sequence, because it
 * goes to terminals and into JSON.
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
