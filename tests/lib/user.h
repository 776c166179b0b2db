/* SPDX-License-Identifier: MIT
 *
 * Another user of the daemon: a process in a role that gives up root before it connects, and then
 * does what it is told in lines. It has the library's answers told back by their code's name.
 */
#ifndef GPUSHM_TESTS_LIB_USER_H
#define GPUSHM_TESTS_LIB_USER_H

#include "tests/lib/role.h"

#include <stdbool.h>
#include <sys/types.h>

/* For the program's table of roles: { "user", user_role }. */
int user_role(char **args);

/* Whether we are root, and may become others; else prints "skipped: why", once. */
bool user_may_change(void);

/* Starts it with that uid and gid as its only ones, connected. */
void user_start(struct role_process *p, const char *socket, uid_t uid, gid_t gid);

/* "create NAME MODE", "create-in NAME POOL", "publish sealed" or "publish shared" (what it created
 * last), "open NAME read", "open NAME write", "close" (what it has last), "unlink NAME",
 * "clean NAME", "flush" or "flush POOL", "restart", "stat NAME", "holders NAME" and "list PREFIX"
 * (answered by a number), "connect" (one connection more), "disconnect" (the last one). Answered by
 * "OK" or the name of the error's code. */
void user_does(struct role_process *p, const char *command, const char *expected);

/* The text of the error that user_does() had last. */
void user_error(struct role_process *p, char *text, size_t size);

void user_end(struct role_process *p);

#endif
