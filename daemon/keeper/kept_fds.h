/* SPDX-License-Identifier: MIT
 *
 * The fds that the keeper keeps for its daemon, with their names, and how the next daemon gets them
 * (sd_listen_fds(3)).
 */
#pragma once

#include <stddef.h>

#define KEPT_FDS_MAX 32768u /* as FileDescriptorStoreMax= in gpushmd.service */
/* The names, in bytes: the kernel takes no longer variable (MAX_ARG_STRLEN). */
#define KEPT_FDS_NAMES_MAX 131000u

/* Zeroed, but for max: empty. */
struct kept_fds {
	char *records; /* owned: an int, then the name with its NUL, for each fd; see kept_fds.c */
	size_t len;    /* bytes of records */
	size_t n, max; /* fds */
};

/* Keeps those that were passed to this process. 0 or -errno. */
int kept_fds_receive(struct kept_fds *k);
void kept_fds_done(struct kept_fds *k); /* closes all */

/* Takes *fd over and sets it to -1. A name may have several fds. 0; -ENOSPC if there are k->max, or
 * the names are too long together; -ENOMEM. On an error *fd stays the caller's. */
int kept_fds_add(struct kept_fds *k, const char *name, int *fd);

/* Closes all fds of that name. Returns how many there were. */
size_t kept_fds_remove(struct kept_fds *k, const char *name);

/* The first fd of that name, borrowed; or -1. */
int kept_fds_find(const struct kept_fds *k, const char *name);

/* Writes how many there are of each first letter of a name: " b 1, m 12"; cut if size is too small.
 */
void kept_fds_describe(const struct kept_fds *k, char *ret, size_t size);

/* In a child that is about to exec: makes them the fds from 3 on and sets LISTEN_FDS,
 * LISTEN_FDNAMES and LISTEN_PID. Other fds lose their numbers. 0 or -errno. */
int kept_fds_pass_on(struct kept_fds *k);
