/* SPDX-License-Identifier: MIT
 *
 * The protocol's error codes, the errno of each for callers of the library, and a fault: a code for
 * programs with a text for people.
 */
#pragma once

/* The members of enum Code of gpushm.proto in their order, without OK, and the errno of each. */
#define CODES(X)                    \
	X(BAD_REQUEST, EINVAL)      \
	X(UNKNOWN_VERB, ENOSYS)     \
	X(VERSION, EPROTONOSUPPORT) \
	X(NAME, EINVAL)             \
	X(NOT_FOUND, ENOENT)        \
	X(EXISTS, EEXIST)           \
	X(ACCESS, EACCES)           \
	X(NOT_PUBLISHED, EAGAIN)    \
	X(TIMED_OUT, ETIMEDOUT)     \
	X(LIMIT, EDQUOT)            \
	X(POOL_FULL, ENOSPC)        \
	X(TOO_LARGE, EFBIG)         \
	X(POOL_FAILED, ENODEV)      \
	X(DRIVER, EIO)              \
	X(LAYOUT, ERANGE)           \
	X(DTYPE, EINVAL)            \
	X(STATE, EBUSY)             \
	X(READ_ONLY, EROFS)         \
	X(NO_LEASE, EBADF)          \
	X(NO_MEMORY, ENOMEM)        \
	X(NO_FDS, ENFILE)           \
	X(UNIDENTIFIED, EPERM)      \
	X(DIRTY, EUCLEAN)           \
	X(RESTART, ENOEXEC)         \
	X(UNSUPPORTED, ENOTSUP)     \
	X(NO_SEAT, EUSERS)          \
	X(EVICTED, ENODATA)         \
	X(STALE, ESTALE)            \
	X(NO_COPY, EBUSY)

#define CODE_MEMBER(name, error) CODE_##name,

enum code { CODE_OK, CODES(CODE_MEMBER) CODE_COUNT };

/* The errno, positive; EIO for an unknown code; 0 for CODE_OK. */
int code_to_errno(int code);

/* "NOT_FOUND"; "UNKNOWN" for an unknown code. */
const char *code_name(int code);

struct fault {
	enum code code;
	char text[384]; /* what happened, to which name, and what to do */
};

/* Fills *f and returns -code_to_errno(code), so that a check is one line: return fault(f, ...). A
 * text that does not fit is cut, but never inside a UTF-8 sequence, because it goes to terminals
 * and into JSON. */
int fault(struct fault *f, enum code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
