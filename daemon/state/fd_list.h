/* SPDX-License-Identifier: MIT
 *
 * What a program hands to the one that takes its place by execve(): open fds, each with a name, and
 * a list of them that the other one reads. The process stays the same.
 */
#ifndef GPUSHM_DAEMON_STATE_FD_LIST_H
#define GPUSHM_DAEMON_STATE_FD_LIST_H

#include "daemon/state/fdstore.h"

struct manifest {
	struct store_fd *items; /* owned; the fds in it are borrowed */
	size_t n, room;
};

/* 0 or -ENOMEM. A zeroed manifest is an empty one. */
int manifest_add(struct manifest *m, const char *name, int fd);
void manifest_done(struct manifest *m);

/* Becomes that program; beside 0 to 2 it has the fds of the manifest and no others. Returns only
 * where that fails, with -errno and all as it was before. */
int manifest_exec(const struct manifest *m, const char *program, char *const *argv);

/* In the program that was started so: 1 and the fds, the caller's now, in any order; 0 where there
 * is no manifest; -EBADMSG where it makes no sense; -errno. The environment forgets it. */
int manifest_receive(struct store_fd **ret, size_t *ret_n);

#endif
