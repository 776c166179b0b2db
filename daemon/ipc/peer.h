/* SPDX-License-Identifier: MIT
 *
 * A peer: one connection. It reads requests from its socket, one at a time, and sends the replies.
 */
#pragma once

#include "daemon/ipc/session.h"

struct peer {
	struct list link; /* listener::peers */
	int socket;	  /* owned */
	uv_poll_t poll;
	bool closing;
	size_t unread; /* bytes of replies since the kernel last said that all were read */
	struct session session;
	void (*on_closed)(void *arg); /* the peer has been freed */
	void *arg;
};

/* Serves a connected socket. refusal: if not NULL, the reply to the first request, after which the
 * connection is closed. 0, and the peer owns the socket and the process; or -errno, and the caller
 * still owns them. */
int peer_new(struct list *peers, struct service *service, int socket, struct process *process,
	     const struct fault *refusal, void (*on_closed)(void *arg), void *arg);

/* For a daemon that is about to end: receives nothing more from the client, and carries out the
 * closes that it sent without waiting for a reply. */
void peer_drain(struct peer *p);

/* Ends the connection now; the memory goes in a callback of the loop. */
void peer_close(struct peer *p);
