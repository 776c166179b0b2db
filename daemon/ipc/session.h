/* SPDX-License-Identifier: MIT
 *
 * A session: one connection as requests see it, without its socket. The peer passes frames in and
 * sends the replies; on_reply() passes on a reply that comes later.
 */
#pragma once

#include "daemon/catalog/buffer.h"
#include "daemon/ipc/waiter.h"
#include "daemon/pool/pool.h"
#include "daemon/state/reexec.h"

struct buffer;
struct process;
struct reply;
struct service;
struct session;

/* One attempt of a request that may wait for a name. 0 with the reply filled in, or -errno with *f
 * filled in. */
typedef int request_attempt(struct session *s, const char *key, struct reply *reply,
			    struct fault *f);

/* EVENTS: what the request has looked at. */
struct pending_events {
	uint64_t after; /* number of the last event */
	uint64_t types; /* 1 << enum event_type for each that the client wants */
	uint64_t lost;	/* events that were gone when it looked */
};

/* The request in flight, of which a session has at most one: what it needs until its reply is sent.
 */
struct pending_request {
	unsigned verb;		  /* its field number in Request */
	struct buffer *creating;  /* CREATE: a worker is allocating this buffer */
	struct waiter waiter;	  /* OPEN, STAT, WATCH, EVENTS: in the waiters' list */
	request_attempt *attempt; /* OPEN, STAT: tried again whenever the name changes */
	bool waits_for_producer;  /* OPEN: until a stream has none */
	union {
		struct {
			enum access access;
			bool refuse_dirty, produce, away;
		} open;
		struct {
			bool holders, waits;
		} stat;
		struct pending_events events;
	} u;
	struct flush flush;	    /* FLUSH: in a pool's list */
	uint32_t flushed_pool;	    /* FLUSH: id of the last pool that was waited for */
	struct restarter restarter; /* RESTART: in the list of those who asked */
	struct list held_link;	    /* park::held, with what the reply attaches: */
	uint64_t held_lease;
	bool held_again;
};

struct session {
	struct service *service;
	struct process *process; /* owned until session_done() */
	struct account *account; /* borrowed: the connection is charged to it */
	struct fault *refusal;	 /* owned; if set, the reply to the first request */
	bool greeted;		 /* HELLO is done */
	uint32_t arrays_max;	 /* in a table that the client can read; from HELLO */
	uint64_t followed_ms;	 /* of the loop's clock: the last reply to EVENTS */
	uint64_t pools_lent;	 /* bit pool::index: this connection has the pool's fd */
	struct pending_request pending;
	/* Called for the reply of a request that returned -EINPROGRESS. */
	void (*on_reply)(struct session *s, struct reply *reply);
};
_Static_assert(POOLS_MAX <= 64, "pools_lent has a bit for each pool");

/* Takes the process over. account: what the connection is charged to, until after session_done().
 */
void session_init(struct session *s, struct service *service, struct process *process,
		  struct account *account);

/* The connection has closed: cancels the request in flight, if there is one, and passes the process
 * to the reaper. The leases do not end here; the reaper ends them when the process is gone. */
void session_done(struct session *s);

/* Frees the list of what a WATCH watches; the waiter is in no list. */
void session_free_watched(struct session *s);

/* Whether a request is in flight. */
static inline bool session_busy(const struct session *s)
{
	const struct pending_request *p = &s->pending;

	return p->creating || !list_empty(&p->waiter.link) || !list_empty(&p->flush.link) ||
	       !list_empty(&p->restarter.link) || !list_empty(&p->held_link);
}
