/* SPDX-License-Identifier: MIT
 *
 * The fds that outlive this program: in the service's fd store at systemd (sd_notify(3),
 * FDSTORE=1), or, across a planned restart, in the program that replaces it. Each has a name. At
 * its start a daemon receives all of them and takes each one out by its name, once. Nothing else
 * keeps the memory of GPUs meanwhile (kept, in proto/facts.h).
 *
 * The names of buffers' fds have a small number in them, the fd index. systemd hands over all names
 * in one environment variable, and the kernel takes no string above 128 KiB (MAX_ARG_STRLEN): so
 * only the indices below FD_INDEX_KEPT are kept by systemd, and for the pages of streams those
 * below FD_PAGES_KEPT. Across an exec there may be more.
 */
#pragma once

#include "daemon/state/fd_list.h"

#include <stdbool.h>
#include <stdint.h>

#define FD_INDEX_KEPT 8192u /* buffers; with two fds each, and names like "m6bj:", 80 KiB */
#define FD_PAGES_KEPT 4096u /* pages of streams; with names like "s35r:", 20 KiB */
#define FD_INDEX_MAX (1u << 20)
#define FD_PIDFDS_KEPT 1024u /* with names of 15 bytes */
#define FD_INDEX_NONE UINT32_MAX

/* The numbers in the names of fds of one kind. */
struct fd_indices {
	uint64_t *bits;	       /* owned; a bit for each fd index: it is taken */
	uint32_t kept;	       /* systemd keeps the fds of the indices below */
	uint32_t first_free;   /* no index below is free */
	uint32_t first_beyond; /* no index from `kept` up to this one is free */
};

struct fdstore {
	struct fd_list received; /* sorted by name; each fd is owned until it is taken, then -1 */
	bool systemd;		 /* systemd keeps fds for us */
	struct fd_list untold;	 /* names that systemd has not been told to forget yet */
	bool untold_lost;	 /* there was no memory for one: nothing more is kept */
	bool late;		 /* it has read nothing for five seconds */
	bool holds;		 /* the stored journal still names these fds: systemd hears later */
	uint32_t pidfds;	 /* number of kept pidfds */
	struct fd_indices buffers, pages;
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

/* Where systemd does not read now, the daemon tells it later, before it has it keep anything else.
 */
void fdstore_forget(struct fdstore *s, const char *name);

/* Tells systemd what it was not told yet to forget. 0, or -errno if there is something left. */
int fdstore_tell(struct fdstore *s);

struct fd_name {
	char text[FD_NAME_MAX + 1];
};

/* "m2s": a letter and a number in base 36; by value, so that it stands in a call's arguments. */
struct fd_name fdstore_name(char kind, uint64_t number);

/* ---- fd indices ---- */

/* Makes all indices free again. 0 or -ENOMEM. */
int fdstore_reset_indices(struct fdstore *s);

/* Takes that index; one that is too high is ignored. */
void fd_indices_mark(struct fd_indices *x, uint32_t index);

/* Takes the lowest free index; from x->kept on if systemd has no place for the fds. FD_INDEX_NONE
 * if all are taken. */
uint32_t fd_indices_take(struct fd_indices *x, bool kept);
void fd_indices_give(struct fd_indices *x, uint32_t index); /* as fd_indices_mark() */
