/* SPDX-License-Identifier: MIT
 *
 * Files in memory that are lent to clients: opening one again, and whether a client still has it.
 */
#pragma once

#include <stdbool.h>

/* Opens the file of a memfd anew. The caller owns the fd. -errno. */
int memfd_reopen(int fd, int flags);

/* The same with O_RDWR, where the file's mode is 0400: it is 0600 for a moment. */
int memfd_reopen_writable(int fd);

/* Replaces an fd that was lent by one that nobody else has. On an error it stays as it is. */
void memfd_withdraw(int *fd);

/* Whether any process has the file of a withdrawn fd open or mapped, by an fd of memfd_reopen(). An
 * fd that memfd_create() returned, and what is mapped with it, is not seen. False if this can't be
 * told. */
bool memfd_is_held(int fd);
