/* SPDX-License-Identifier: MIT
 *
 * A request: one frame from a client, decoded, checked and carried out.
 */
#ifndef GPUSHM_DAEMON_IPC_REQUEST_H
#define GPUSHM_DAEMON_IPC_REQUEST_H

#include "daemon/ipc/reply.h"
#include "daemon/ipc/session.h"

/* 0: *ret is to be sent, a refusal included. -EINPROGRESS: s->on_answer() comes later. -EPROTO: the
 * frame breaks the protocol, *f says how, and the connection is to be closed. */
int request_handle(struct session *s, const void *data, size_t len, struct reply *ret,
		   struct fault *f);

/* For a daemon that goes: carries the frame out if it is a CLOSE that wants no answer. Anything
 * else is repeated by who sent it, for it was never answered. */
void request_handle_quiet(struct session *s, const void *data, size_t len);

#endif
