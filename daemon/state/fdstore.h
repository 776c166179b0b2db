/* SPDX-License-Identifier: MIT
 *
 * Where fds are when the daemon is not: with systemd, in the service's fd store (sd_notify(3),
 * FDSTORE=1), or, across a planned restart by hand, in the next program itself. Each has a name;
 * what was inherited is taken out by name, once.
 */
#ifndef GPUSHM_DAEMON_STATE_FDSTORE_H
#define GPUSHM_DAEMON_STATE_FDSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FDSTORE_NAME_MAX 31u

struct fdstore_fd {
	char name[FDSTORE_NAME_MAX + 1];
	int fd; /* owned until it is taken; -1 then */
};

struct fdstore {
	struct fdstore_fd *inherited; /* owned; sorted by name */
	size_t n_inherited;
	bool systemd;	 /* there is somebody to keep fds for us */
	uint32_t pidfds; /* of those that are kept */
};

/* Takes what was handed over at the start, by the program before us (manifest.h) or by a keeper
 * (sd_listen_fds(3)); the environment forgets it. 0 or -errno. */
int fdstore_open(struct fdstore *s);

/* Closes what nobody took, and has its keeper forget it, unless it is a copy of what was taken;
 * returns how many there were. */
size_t fdstore_drop_rest(struct fdstore *s);
void fdstore_close(struct fdstore *s);

/* "m2s": a letter and a number, in base 36. */
void fdstore_name(char name[FDSTORE_NAME_MAX + 1], char kind, uint64_t number);

/* The fd of that name, now the caller's, or -1. */
int fdstore_take(struct fdstore *s, const char *name);

/* Has a copy of the fd kept under that name, and not closed when it hangs up. 0, also where nobody
 * keeps fds; -errno where the keeper can't be told. */
int fdstore_keep(struct fdstore *s, const char *name, int fd);
void fdstore_forget(struct fdstore *s, const char *name);

#endif
