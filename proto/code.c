/* SPDX-License-Identifier: MIT
 *
 * The name of each error code of the protocol, and the errno that callers of the library get.
 *
 * Only this file sees both our enum code and the generated one. It does not compile if they differ,
 * so that other files may use one for the other.
 */
#include "proto/code.h"

#include "gpushm.pb-c.h"

#include <errno.h>

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
