/* SPDX-License-Identifier: MIT
 *
 * The listener: the socket that clients connect to, and the peers that came through it.
 */
#pragma once

#include "daemon/ipc/lingering.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct service;

struct listener {
	struct service *service;
	int socket;  /* owned */
	int reserve; /* owned; closed for a moment to accept a client at EMFILE */
	uv_poll_t poll;
	uv_timer_t retry; /* runs while accept() is paused because fds or memory are short */
	bool paused;
	uint64_t warned_ms; /* when the last warning was logged; the loop's clock */
	struct list peers;  /* peer::link */
	struct lingering lingering;
};

/* Serves a listening socket, which it takes over on success. 0 or -errno. */
int listener_init(struct listener *l, struct service *service, int socket);

/* Before the daemon ends: carries out what every peer has sent without waiting for a reply, since
 * no client sends that again, and lets none send more (peer_drain()). The peers stay until
 * listener_done(), or an exec. */
void listener_drain(struct listener *l);

/* Bits of pool::index: mempools whose fd a client has that is connected. */
uint64_t listener_pools_lent(const struct listener *l);

/* Closes the socket and every peer; the loop must run once more. */
void listener_done(struct listener *l);
