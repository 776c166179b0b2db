/* SPDX-License-Identifier: MIT
 *
 * A client process that does two things: it connects, and it dies. What it connects it hands to its
 * maker, who speaks on it; to the daemon it is the process's all the same, for the kernel tells who
 * connected (SO_PEERCRED). So a test that is one program can have many processes and users, each
 * lives, closes sockets and is killed on its own, and no command goes through a pipe. Failures end
 * the Check test.
 */
#ifndef GPUSHM_TESTS_LIB_ACTOR_H
#define GPUSHM_TESTS_LIB_ACTOR_H

#include <sys/types.h>

struct actor {
	pid_t pid; /* 0: there is none */
	int control;
};

/* Forks it; it gives up root for that user, who is in that group alone. */
void actor_start(struct actor *a, const char *path, uid_t uid, gid_t gid);

/* A connected socket, with nothing said on it. */
int actor_connect(struct actor *a);

/* SIGKILL; when this returns, the process has gone. */
void actor_kill(struct actor *a);

#endif
