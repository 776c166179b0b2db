/* SPDX-License-Identifier: MIT
 *
 * A peer: one connection. It reads requests from its socket, one at a time, and sends the replies.
 */
#pragma once

#include "daemon/catalog/turns.h"
#include "daemon/ipc/session.h"
#include "daemon/ipc/unread.h"

enum { PEER_CONNECTION, PEER_FD, PEER_CHARGES };

struct peer {
	struct list link; /* listener::peers; once closed, a list of struct lingering */
	int socket;	  /* owned */
	uv_poll_t poll;
	bool closing;
	struct unread unread;
	struct charge charges[PEER_CHARGES];
	struct work work; /* there is something to read; once closed, to free it */
	unsigned passed;  /* reports of it while it waited for its turn */
	bool parked;	  /* the socket is not polled: take_turn() looks at it */
	/* Owned: a request of which a part is done. The next turn continues it. */
	struct {
		unsigned char *data;
		size_t len;
	} unfinished;
	uint64_t since_ns; /* CLOCK_MONOTONIC: when the request in flight was read */
	bool replied;	   /* to it, in this turn */
	bool broken;	   /* poll reported an error: if there is nothing to read, it ends */
	struct session session;
	void (*on_closed)(struct peer *p, void *arg); /* the loop has let go of the socket */
	void *arg;
};

/* Serves a connected socket. refusal: if not NULL, the reply to the first request, after which the
 * connection is closed. 0, and the peer owns the socket, the charges and the process; or -errno,
 * and the caller still owns them. */
int peer_new(struct list *peers, struct service *service, int socket, struct process *process,
	     const struct charge charges[PEER_CHARGES], const struct fault *refusal,
	     void (*on_closed)(struct peer *p, void *arg), void *arg);

/* For a daemon that is about to end: receives nothing more from the client, and carries out the
 * closes that it sent without waiting for a reply. */
void peer_drain(struct peer *p);

/* Ends the connection now. Later, from the loop, on_closed() is called: the peer's owner then
 * frees the peer, or lets it linger while its client has unread replies. */
void peer_close(struct peer *p);

/* Closes the socket and discharges. */
void peer_free(struct peer *p);
