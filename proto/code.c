/* SPDX-License-Identifier: MIT
 *
 * The name of each error code of the protocol, and the errno that callers of the library get.
 *
 * Only this file sees both our enum code and the generated one. It does not compile if they differ,
 * so that other files may use one for the other.
 */
#include "proto/code.h"

#include "proto/base/own.h"

#include "gpushm.pb-c.h"

static const struct {
	const char *name;
	int error;
} codes[CODE_COUNT] = {
	[CODE_OK] = { "OK", 0 },
	[CODE_BAD_REQUEST] = { "BAD_REQUEST", EINVAL },
	[CODE_UNKNOWN_VERB] = { "UNKNOWN_VERB", ENOSYS },
	[CODE_VERSION] = { "VERSION", EPROTONOSUPPORT },
	[CODE_NAME] = { "NAME", EINVAL },
	[CODE_NOT_FOUND] = { "NOT_FOUND", ENOENT },
	[CODE_EXISTS] = { "EXISTS", EEXIST },
	[CODE_ACCESS] = { "ACCESS", EACCES },
	[CODE_NOT_PUBLISHED] = { "NOT_PUBLISHED", EAGAIN },
	[CODE_TIMED_OUT] = { "TIMED_OUT", ETIMEDOUT },
	[CODE_LIMIT] = { "LIMIT", EDQUOT },
	[CODE_POOL_FULL] = { "POOL_FULL", ENOSPC },
	[CODE_TOO_LARGE] = { "TOO_LARGE", EFBIG },
	[CODE_POOL_FAILED] = { "POOL_FAILED", ENODEV },
	[CODE_DRIVER] = { "DRIVER", EIO },
	[CODE_LAYOUT] = { "LAYOUT", ERANGE },
	[CODE_DTYPE] = { "DTYPE", EINVAL },
	[CODE_STATE] = { "STATE", EBUSY },
	[CODE_READ_ONLY] = { "READ_ONLY", EROFS },
	[CODE_NO_LEASE] = { "NO_LEASE", EBADF },
	[CODE_NO_MEMORY] = { "NO_MEMORY", ENOMEM },
	[CODE_NO_FDS] = { "NO_FDS", ENFILE },
	[CODE_UNIDENTIFIED] = { "UNIDENTIFIED", EPERM },
	[CODE_DIRTY] = { "DIRTY", EUCLEAN },
	[CODE_RESTART] = { "RESTART", ENOEXEC },
};

#define SAME(name)                                                                \
	_Static_assert((int)CODE_##name == (int)GPUSHM__PROTO__CODE__CODE_##name, \
		       "enum code differs from gpushm.proto: " #name)

SAME(BAD_REQUEST);
SAME(UNKNOWN_VERB);
SAME(VERSION);
SAME(NAME);
SAME(NOT_FOUND);
SAME(EXISTS);
SAME(ACCESS);
SAME(NOT_PUBLISHED);
SAME(TIMED_OUT);
SAME(LIMIT);
SAME(POOL_FULL);
SAME(TOO_LARGE);
SAME(POOL_FAILED);
SAME(DRIVER);
SAME(LAYOUT);
SAME(DTYPE);
SAME(STATE);
SAME(READ_ONLY);
SAME(NO_LEASE);
SAME(NO_MEMORY);
SAME(NO_FDS);
SAME(UNIDENTIFIED);
SAME(DIRTY);
SAME(RESTART);

int code_to_errno(int code)
{
	return code >= 0 && code < CODE_COUNT ? codes[code].error : EIO;
}

const char *code_name(int code)
{
	return code >= 0 && code < CODE_COUNT ? codes[code].name : "UNKNOWN";
}
