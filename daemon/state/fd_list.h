/* SPDX-License-Identifier: MIT
 *
 * Open fds with names, and how a program hands them to the one that replaces it by execve(), in the
 * same process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FD_NAME_MAX 31u

struct named_fd {
	char name[FD_NAME_MAX + 1];
	int fd;
};

/* Zeroed: an empty list. */
struct fd_list {
	struct named_fd *items; /* owned; the fds in it belong to the list's user */
	size_t n;
};

/* 0 or -ENOMEM. */
int fd_list_add(struct fd_list *l, const char *name, int fd);
void fd_list_done(struct fd_list *l);

/* Replaces this program. The new one gets the fds of the list and 0 to 2, and no others. Returns
 * only on an error, with -errno and nothing changed. */
int fd_list_exec(const struct fd_list *l, const char *program, char *const *argv);

/* Whether fd_list_exec() started this program. */
bool fd_list_is_passed(void);

/* In such a program: adds the fds to an empty list, and the caller owns
 * them. Returns 1; 0 if nothing was handed over; -EBADMSG if the list makes no sense; -errno.
 * Removes the variable from the environment. */
int fd_list_receive(struct fd_list *l);
