/* SPDX-License-Identifier: MIT
 *
 * Namespaces and a root as a container runtime makes them, for roles and for a daemon: mount, PID,
 * IPC, network, UTS and cgroup namespaces, if asked for a user namespace, and a small read-only
 * root of its own. It has /usr, the devices, and copies of the programs of the build; nothing else
 * of the machine.
 */
#pragma once

#include "tests/lib/role.h"

#include <stdbool.h>
#include <sys/types.h>

struct container {
	uid_t uid;	     /* the user and group outside */
	bool userns;	     /* a user namespace that maps this user alone, as 0 */
	const char *sockets; /* a folder that is mounted read-only at `at`, or NULL */
	const char *at;	     /* NULL: /run/gpushm */
	const char *folder;  /* a folder that is mounted at its own path, or NULL */
	const char *user;    /* the name of the user in /etc/passwd; NULL: app */
	bool open_run;	     /* everybody may write to /run */
};

/* As role_start(). The process is the first one of its PID namespace. */
void container_start(struct role_process *p, const struct container *c, const char *name,
		     const char *const *args);

/* The flags of clone(2) for a child that calls container_enter() first. Ends that child if it
 * fails. */
int container_flags(void);
void container_enter(const struct container *c);

/* Returns whether containers can be made here, and their processes be watched from others; if not,
 * prints "skipped: why". */
bool container_may_start(void);
