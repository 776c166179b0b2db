/* SPDX-License-Identifier: MIT
 *
 * The protocol's error codes, and the errno of each for callers of the library.
 */
#ifndef GPUSHM_PROTO_CODE_H
#define GPUSHM_PROTO_CODE_H

/* Values are enum Code of gpushm.proto; code.c asserts that they are the same. */
enum code {
	CODE_OK = 0,
	CODE_BAD_REQUEST,
	CODE_UNKNOWN_VERB,
	CODE_VERSION,
	CODE_NAME,
	CODE_NOT_FOUND,
	CODE_EXISTS,
	CODE_ACCESS,
	CODE_NOT_PUBLISHED,
	CODE_TIMED_OUT,
	CODE_LIMIT,
	CODE_POOL_FULL,
	CODE_TOO_LARGE,
	CODE_POOL_FAILED,
	CODE_DRIVER,
	CODE_LAYOUT,
	CODE_DTYPE,
	CODE_STATE,
	CODE_READ_ONLY,
	CODE_NO_LEASE,
	CODE_NO_MEMORY,
	CODE_NO_FDS,
	CODE_UNIDENTIFIED,
	CODE_DIRTY,
	CODE_RESTART,
	CODE_COUNT,
};

/* The errno, positive; EIO for an unknown code; 0 for CODE_OK. */
int code_to_errno(int code);

/* "NOT_FOUND"; "UNKNOWN" for an unknown code. */
const char *code_name(int code);

#endif
