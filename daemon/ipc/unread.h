/* SPDX-License-Identifier: MIT
 *
 * What one connection's client may not have read yet. The kernel counts a descriptor as in flight,
 * against the daemon's user, until the client has read it or closed its socket, and refuses to send
 * any more above a limit (ETOOMANYREFS). So it is charged to the client's user from the moment when
 * it is sent until the kernel says that all is read, also after the daemon has hung up.
 */
#pragma once

#include "daemon/catalog/account.h"

struct unread {
	struct list link; /* account::unread, while descriptors are charged */
	int socket;	  /* borrowed */
	size_t bytes;	  /* of replies since the kernel last said that all were read */
	struct charge fds;
};

void unread_init(struct unread *u, int socket);

/* Charges the user for n descriptors that are about to be sent. At the end of the user's share it
 * first looks whether other connections of the user have read theirs. 0; or -errno with *f filled
 * in. */
int unread_charge(struct unread *u, struct accounts *a, uid_t uid, size_t n, struct fault *f);

/* A reply has been sent. */
void unread_sent(struct unread *u, size_t bytes, size_t n_fds);

/* Whether the client has read all replies, or so few bytes are unread that it does not matter. */
bool unread_is_little(struct unread *u);

/* Asks the kernel whether the client has read everything, or has closed its socket. If so, nothing
 * is charged any more. */
bool unread_settle(struct unread *u);

/* The socket is closed: discharges. */
void unread_done(struct unread *u);
