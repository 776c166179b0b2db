/* SPDX-License-Identifier: MIT
 *
 * Another user of the daemon: a process in a role that gives up root before it connects, and then
 * runs commands, one a line. It replies with the name of the library's error code.
 */
#pragma once

#include "tests/lib/role.h"

#include <stdbool.h>
#include <sys/types.h>

/* For the program's table of roles: { "user", user_role }. */
int user_role(char **args);

/* Returns whether this process is root and may become other users; if not, prints "skipped: why"
 * once. */
bool user_may_change(void);

/* Makes this process another user's for good, with this gid alone; false: it may not. It keeps the
 * driver, whose file may be in a folder that is closed to that user. */
bool user_become(uid_t uid, gid_t gid);

/* Starts the process with this uid and this gid alone, and connects it. */
void user_start(struct role_process *p, const char *socket, uid_t uid, gid_t gid);

/* Commands: "create NAME MODE", "create-in NAME POOL", "create-of NAME BYTES", "publish sealed" or
 * "publish shared" (the last created buffer), "publish-over NAME" (the same, sealed, under a name
 * that may be taken), "rename NAME TO", "replace NAME TO", "open NAME read", "open NAME write",
 * "close" (the buffer it got last), "unlink NAME", "clean NAME", "flush" or "flush POOL",
 * "restart", "stat NAME", "holders NAME" and "list PREFIX" (both return a number), "connect" (one
 * more connection), "disconnect" (the last one). "owner NAME" returns a uid. expected is "OK" or
 * the name of the error's code.
 */
void user_does(struct role_process *p, const char *command, const char *expected);

/* The text of the last error that user_does() received. */
void user_error(struct role_process *p, char *text, size_t size);

void user_end(struct role_process *p);
