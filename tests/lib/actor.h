/* SPDX-License-Identifier: MIT
 *
 * A client process that only connects and dies. It passes each socket that it connects to the test,
 * and the test uses the socket. For the daemon the connection still belongs to the process, because
 * the kernel reports who connected (SO_PEERCRED). So one test program can have many processes and
 * users; each lives, closes its sockets and is killed on its own, and no command goes through a
 * pipe. Failures end the Check test.
 */
#pragma once

#include <sys/types.h>

struct actor {
	pid_t pid; /* 0: no process */
	int control;
};

/* Forks the process, which gives up root for this user; the user is in this group alone. */
void actor_start(struct actor *a, const char *path, uid_t uid, gid_t gid);

/* Returns a connected socket on which nothing was sent yet. */
int actor_connect(struct actor *a);

/* SIGKILL; the process is gone when this returns. */
void actor_kill(struct actor *a);
