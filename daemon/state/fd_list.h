/* SPDX-License-Identifier: MIT
 *
 * What a program hands to the one that takes its place by execve(): open fds, each with a name, and
 * a list of them that the other one reads. The process stays the same.
 */
#ifndef GPUSHM_DAEMON_STATE_FD_LIST_H
#define GPUSHM_DAEMON_STATE_FD_LIST_H

#include "daemon/state/fdstore.h"

struct fd_list {
	struct fdstore_fd *items; /* owned; the fds in it are borrowed */
	size_t n, room;
};

/* 0 or -ENOMEM. A zeroed manifest is an empty one. */
int fd_list_add(struct fd_list *m, const char *name, int fd);
void fd_list_done(struct fd_list *m);

/* Becomes that program; beside 0 to 2 it has the fds of the manifest and no others. Returns only
 * where that fails, with -errno and all as it was before. */
int fd_list_exec(const struct fd_list *m, const char *program, char *const *argv);

/* In the program that was started so: 1 and the fds, the caller's now, in any order; 0 where there
 * is no manifest; -EBADMSG where it makes no sense; -errno. The environment forgets it. */
int fd_list_receive(struct fdstore_fd **ret, size_t *ret_n);

#endif
