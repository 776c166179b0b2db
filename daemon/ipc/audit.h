/* SPDX-License-Identifier: MIT
 *
 * The audit: with audit=yes in gpushmd.conf(5) a line in the log for each buffer that a user
 * created, opened, published, renamed, unlinked or cleaned, and for each request that was refused
 * because the user may not do it.
 */
#pragma once

#include "daemon/ipc/session.h"

/* done: "created", as in "created buffer ...". Does nothing without audit=yes. */
void audit(const struct session *s, const char *done, const char *key, uint64_t buffer);

/* "renamed buffer ... to ...". */
void audit_rename(const struct session *s, const char *from, const char *to, uint64_t buffer);

/* The buffer, if it is not 0, has lost its name to another one. */
static inline void audit_replaced(const struct session *s, const char *key, uint64_t buffer)
{
	if (buffer)
		audit(s, "replaced", key, buffer);
}

/* A request that was answered with *f: a line if the user may not do it. verb: "open". */
void audit_refusal(const struct session *s, const char *verb, const struct fault *f);
