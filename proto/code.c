/* SPDX-License-Identifier: MIT
 *
 * The name of each error code of the protocol, and the errno that callers of the library get.
 *
 * Only this file sees both our enum code and the generated one. It does not compile if they differ,
 * so that other files may use one for the other.
 */
#include "proto/code.h"

#include "gpushm.pb-c.h"
#include "proto/name.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ENTRY(name, error) [CODE_##name] = { #name, error },
#define SAME(name, error)                                                         \
	_Static_assert((int)CODE_##name == (int)GPUSHM__PROTO__CODE__CODE_##name, \
		       "enum code differs from gpushm.proto: " #name);

CODES(SAME)

static const struct {
	const char *name;
	int error;
} codes[CODE_COUNT] = { { "OK", 0 }, CODES(ENTRY) };

int code_to_errno(int code)
{
	return code >= 0 && code < CODE_COUNT ? codes[code].error : EIO;
}

const char *code_name(int code)
{
	return code >= 0 && code < CODE_COUNT ? codes[code].name : "UNKNOWN";
}

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
