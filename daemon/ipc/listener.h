/* SPDX-License-Identifier: MIT
 *
 * The listener: the socket that clients connect to, and the peers that came through it.
 */
#ifndef GPUSHM_DAEMON_IPC_LISTENER_H
#define GPUSHM_DAEMON_IPC_LISTENER_H

#include "daemon/ipc/session.h"

struct listener {
	struct service *service;
	int socket;  /* owned */
	int reserve; /* owned; given up to tell a client that there are no fds */
	uv_poll_t poll;
	uv_timer_t retry; /* while accept() fails for want of fds or memory */
	bool paused;
	uint64_t warned_ms; /* of the loop's clock: the last line about it */
	struct list peers;  /* peer::link */
};

/* Serves a listening socket, which it takes over on success. 0 or -errno. */
int listener_init(struct listener *l, struct service *service, int socket);

/* A close that wants no answer is not repeated. So before the daemon goes what every peer has said
 * is heard, and none can say more (peer_hear_out()). They stay until listener_done(), or an exec.
 */
void listener_hear_out(struct listener *l);

/* Closes the socket and every peer; the loop must run once more. */
void listener_done(struct listener *l);

#endif
