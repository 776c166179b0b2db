/* SPDX-License-Identifier: MIT
 *
 * What the protocol remembers of one connection, and of them all. A session has no socket: its peer
 * feeds it frames and is told when an answer comes later.
 */
#ifndef GPUSHM_DAEMON_IPC_SESSION_H
#define GPUSHM_DAEMON_IPC_SESSION_H

#include "daemon/catalog/catalog.h"
#include "daemon/catalog/reaper.h"
#include "daemon/ipc/waiter.h"
#include "daemon/state/reexec.h"
#include "daemon/util/busy_poll.h"
#include "daemon/util/ratelimit.h"
#include "proto/base/arena.h"

struct reply;

/* The daemon as requests see it: one. */
struct service {
	struct catalog catalog;
	struct reaper reaper;
	struct waiters waiters;
	struct reexec restart;
	struct busy_poll awake;
	const struct config *config; /* borrowed */
	unsigned char id[DAEMON_ID_BYTES];
	uint64_t started_ns; /* CLOCK_MONOTONIC */
	bool kept;	     /* what is published outlives this daemon */
	uint32_t peers;
	uint64_t requests, refused, violations;
	struct ratelimit throttle; /* of what is logged about violations */
	struct arena unpack;	   /* of the request that is being handled */
	struct arena build;	   /* of the answer that is being built */
};

struct session {
	struct service *service;
	struct process *process; /* owned; NULL for a refused one */
	struct fault *refusal; /* owned; what the first request is answered with, if this is set */
	bool greeted;	       /* HELLO is done */
	uint64_t pools_lent;   /* bit pool::index: this connection has the pool's fd */
	struct buffer *creating;    /* a CREATE is under way */
	struct waiter waiter;	    /* an OPEN, STAT or WATCH waits; what it watches is owned */
	struct flush flush;	    /* a FLUSH waits */
	struct restarter restarter; /* a RESTART waits */
	uint32_t flushed;	    /* id of the pool that it waits for, or waited for last */
	bool waits_for_stat, wants_holders, refuses_dirty;
	enum access access;
	void (*on_answer)(struct session *s,
			  struct reply *a); /* for a request that was -EINPROGRESS */
};
_Static_assert(POOLS_MAX <= 64, "pools_lent has a bit for each pool");

/* Takes the process over. */
void session_init(struct session *s, struct service *service, struct process *process);

/* The connection has closed: what waits or is being made is called off, and the process goes to the
 * reaper. */
void session_done(struct session *s);

/* What was watched is not any more; the waiter is in no list. */
void session_forget_watched(struct session *s);

bool session_busy(const struct session *s);

#endif
