/* SPDX-License-Identifier: MIT
 *
 * The keeper's end of systemd's notify protocol (sd_notify(3)): a socket, and what a datagram of
 * the daemon means.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NOTIFY_TEXT_MAX 4095u /* bytes of a datagram; longer ones are not read */
#define NOTIFY_NAME_MAX 255u  /* of FDNAME= */
#define NOTIFY_FDS_MAX 253u   /* SCM_MAX_FD of the kernel */

/* A datagram: what it says, and the fds that came with it. */
struct notification {
	char text[NOTIFY_TEXT_MAX + 1];
	size_t len;
	pid_t sender; /* from the kernel; 0: unknown */
	int fds[NOTIFY_FDS_MAX];
	size_t n_fds;
	bool truncated; /* bytes or fds are missing */

	/* Of the text: */
	bool ready, reloading, stopping, status, alive, hung, store, forget;
	uint64_t interval_us; /* WATCHDOG_USEC=; 0: no such line */
	char name[NOTIFY_NAME_MAX + 1];
};

struct notify {
	int socket;	  /* owned */
	int file;	  /* owned: its file (O_PATH), or -1 */
	char address[40]; /* for NOTIFY_SOCKET: a path; or '@' and a name that the kernel chose */
};

/* 0 or -errno. */
int notify_open(struct notify *ret);
void notify_close(struct notify *n);

/* Reads one datagram. 1; 0: none has come; -errno. The caller owns the fds, until
 * notification_done(). */
int notify_receive(const struct notify *n, struct notification *ret);
void notification_done(struct notification *m);

/* Reads m->text into the members after it. Lines that the keeper has no use for are skipped. 0, or
 * -EBADMSG: a NUL, or a value that makes no sense; then nothing of the text counts. */
int notification_parse(struct notification *m);
