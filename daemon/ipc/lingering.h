/* SPDX-License-Identifier: MIT
 *
 * Lingering peers: connections that have ended. Each is charged as before until its client has read
 * all replies or has closed its end, and its socket is closed in a turn of its user.
 */
#pragma once

#include "daemon/ipc/peer.h"

struct lingering {
	struct turns *turns;	     /* borrowed */
	struct list unread;	     /* peer::link: their clients have not read all replies */
	struct list settled;	     /* peer::link: queued to be closed */
	uv_timer_t look;	     /* runs while there are unread ones */
	void (*on_freed)(void *arg); /* a peer is gone: there are descriptors again */
	void *arg;
};

void lingering_init(struct lingering *l, uv_loop_t *loop, struct turns *turns,
		    void (*on_freed)(void *arg), void *arg);

/* Takes over a peer from its on_closed(). */
void lingering_add(struct lingering *l, struct peer *p);

/* Frees one peer of the user at once, if the client of one is done. Returns whether it has. */
bool lingering_free_one(struct lingering *l, uid_t uid);

/* Frees all; the loop must run once more. */
void lingering_done(struct lingering *l);
