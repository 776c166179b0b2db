/* SPDX-License-Identifier: MIT
 *
 * The endpoint: the socket that the daemon listens on, from systemd or made under a lock.
 */
#pragma once

#include "daemon/config/config.h"
#include "daemon/state/fdstore.h"

struct endpoint {
	int socket; /* listening; owned until the listener takes it */
	int lock;   /* owned; held while the daemon runs; -1 for systemd's socket */
	char *path; /* owned; removed at the end, unless kept; NULL for systemd's socket */
	bool kept;  /* the next daemon gets the socket */
};

/* Takes the socket named "gpushmd" that systemd or the program before an exec passed, or makes one
 * at config->socket_path. 0; -EADDRINUSE if another daemon holds the lock; -EINVAL if the path is
 * something other than a socket; -errno. Logs every failure. */
int endpoint_open(const struct config *config, struct fdstore *store, struct endpoint *ret);

/* Adds the socket and the lock to the fds for an exec; socket is the listening one, which the
 * listener may own by now. 0 or -ENOMEM. */
int endpoint_list(const struct endpoint *e, int socket, struct fd_list *m);

/* Warns a user whose programs find another socket than this one, if that is the user's default. */
void endpoint_tell_clients(const struct endpoint *e);

/* Removes the socket's file, unless the next daemon gets the socket, and releases the lock. A
 * zeroed or half-open endpoint is allowed. */
void endpoint_close(struct endpoint *e);
