/* SPDX-License-Identifier: MIT
 *
 * The fds that outlive this program: in the service's fd store at systemd (sd_notify(3),
 * FDSTORE=1), or, across a planned restart, in the program that replaces it. Each has a name. At
 * its start a daemon receives all of them and takes each one out by its name, once.
 *
 * The names of buffers' fds have a small number in them, the fd index. systemd hands over all names
 * in one environment variable, and the kernel takes no string above 128 KiB (MAX_ARG_STRLEN): so
 * only the indices below FD_INDEX_KEPT are kept by systemd. Across an exec there may be more.
 */
#pragma once

#include "daemon/state/fd_list.h"

#include <stdbool.h>
#include <stdint.h>

#define FD_INDEX_KEPT 8192u /* buffers; with two fds each, and names like "m6bj:", 80 KiB */
#define FD_INDEX_MAX (1u << 20)
#define FD_PIDFDS_KEPT 1024u /* with names of 15 bytes */
#define FD_INDEX_NONE UINT32_MAX

struct fdstore {
	struct fd_list received; /* sorted by name; each fd is owned until it is taken, then -1 */
	bool systemd;		 /* systemd keeps fds for us */
	uint32_t pidfds;	 /* number of kept pidfds */
	uint64_t *indices;	 /* owned; a bit for each fd index: it is taken */
	uint32_t first_free;	 /* no index below is free */
	uint32_t first_beyond;	 /* no index from FD_INDEX_KEPT up to this one is free */
};

/* Receives what the program before us or systemd (sd_listen_fds(3)) handed over; removes it from
 * the environment. No index is taken. 0 or -errno. */
int fdstore_open(struct fdstore *s);
void fdstore_close(struct fdstore *s);

/* Closes the fds that nobody took. systemd forgets them, too, except copies of an fd that was
 * taken. Returns how many there were. */
size_t fdstore_drop_rest(struct fdstore *s);

/* ---- by name ---- */

/* The received fd of that name, now the caller's, or -1. */
int fdstore_take(struct fdstore *s, const char *name);

/* Makes systemd keep a copy of the fd under that name, and not close it when it hangs up. 0, also
 * without systemd; -errno if systemd can't be told. */
int fdstore_keep(struct fdstore *s, const char *name, int fd);
void fdstore_forget(struct fdstore *s, const char *name);

struct fd_name {
	char text[FD_NAME_MAX + 1];
};

/* "m2s": a letter and a number in base 36; by value, so that it stands in a call's arguments. */
struct fd_name fdstore_name(char kind, uint64_t number);

/* ---- fd indices ---- */

/* Makes all indices free again. 0 or -ENOMEM. */
int fdstore_reset_indices(struct fdstore *s);

/* Takes that index; one that is too high is ignored. */
void fdstore_mark_index(struct fdstore *s, uint32_t index);

/* Takes the lowest free index; from FD_INDEX_KEPT on if the buffer has no place at systemd.
 * FD_INDEX_NONE if all are taken. */
uint32_t fdstore_take_index(struct fdstore *s, bool kept);
void fdstore_give_index(struct fdstore *s, uint32_t index); /* likewise */
