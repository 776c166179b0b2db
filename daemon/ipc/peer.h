/* SPDX-License-Identifier: MIT
 *
 * A peer: one connection. It reads requests from its socket, one at a time, and sends their
 * answers.
 */
#ifndef GPUSHM_DAEMON_IPC_PEER_H
#define GPUSHM_DAEMON_IPC_PEER_H

#include "daemon/ipc/session.h"

struct peer {
	struct list link; /* listener::peers */
	int socket;	  /* owned */
	uv_poll_t poll;
	bool closing;
	size_t unread; /* bytes of answers since the kernel said that all were read, at most */
	struct session session;
	void (*on_closed)(void *arg); /* the peer has been freed */
	void *arg;
};

/* Serves a connected socket. refusal: what its first request is answered with, before it is closed;
 * NULL for a peer that is welcome. 0, and the socket and the process are the peer's; or -errno, and
 * they stay the caller's. */
int peer_new(struct list *peers, struct service *service, int socket, struct process *process,
	     const struct fault *refusal, void (*on_closed)(void *arg), void *arg);

/* For a daemon that goes: the client can say no more, and what it has said without waiting for an
 * answer is done. */
void peer_hear_out(struct peer *p);

/* Ends the connection now; the memory goes in a callback of the loop. */
void peer_close(struct peer *p);

#endif
