/* SPDX-License-Identifier: MIT
 *
 * Files in memory that are lent to clients: making one, opening it again, and whether a client
 * still has it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A file of fixed size and mode 0400, which nobody who gets one of its fds can open for writing.
 * The first two were opened anew, and are lent; fd_original is memfd_create()'s. -1: closed. */
struct memfd {
	int fd, fd_read_only, fd_original;
};
#define MEMFD_NONE ((struct memfd){ -1, -1, -1 })

/* Zeros, with these seals. 0; -errno, and *ret_failed is the call. */
int memfd_make(const char *name, uint64_t bytes, int seals, struct memfd *ret,
	       const char **ret_failed);
void memfd_close(struct memfd *m);

/* Whether it is such a file. */
bool memfd_fits(int fd, uint64_t bytes, int seals);

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
