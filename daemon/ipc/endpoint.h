/* SPDX-License-Identifier: MIT
 *
 * The socket's place in the file system: systemd's, or one that we make, under a lock.
 */
#ifndef GPUSHM_DAEMON_IPC_ENDPOINT_H
#define GPUSHM_DAEMON_IPC_ENDPOINT_H

#include "daemon/config/config.h"
#include "daemon/state/fd_list.h"

struct endpoint {
	int socket; /* listening; owned until somebody takes it */
	int lock;   /* owned; held while the daemon runs; -1 for systemd's socket */
	char *path; /* owned; what to remove at the end; NULL for systemd's */
};

/* The socket named "gpushmd" that systemd, or the program before us, handed over, or a fresh one at
 * config->socket_path. 0; -EADDRINUSE where another daemon has the lock; -EINVAL where something
 * else than a socket is in the way; -errno. Every failure is logged. */
int endpoint_open(const struct config *config, struct fdstore *store, struct endpoint *ret);

/* Lists them for an exec; socket is the listening one, whoever has it by now. 0 or -ENOMEM. */
int endpoint_list(const struct endpoint *e, int socket, struct fd_list *m);

/* Removes the socket's file, and gives the lock up. Zero or half-open ones are fine. */
void endpoint_close(struct endpoint *e);

#endif
