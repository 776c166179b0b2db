/* SPDX-License-Identifier: MIT
 *
 * A connection: the socket, the one request that is in flight on it, and what HELLO said. Generated
 * protobuf names appear in client/lib/link and in the files of the requests in client/lib/buffer
 * only.
 */
#pragma once

#include "client/gpushm.h"
#include "client/lib/link/status_map.h"
#include "client/lib/map/map.h"
#include "gpushm.pb-c.h"
#include "proto/base/arena.h"
#include "proto/base/list.h"
#include "proto/message.h"
#include "proto/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

struct pool_info {
	struct pool_info *next;
	uint32_t id;
	struct map_pool map; /* what client/lib/map needs: kind, device, identity of the pool */
	char name[POOL_NAME_MAX + 1];
	bool is_default; /* as HELLO said it first */
	int pool_fd; /* mempool: the pool's own fd, which the daemon sends once a connection; kept
			so that a failed import can be tried again; -1. Under gpushm::lock. */
};

/* A lease of this process. After a restart of the daemon the connection reclaims it. */
struct lease {
	struct list link; /* gpushm::leases, under gpushm::lock */
	uint64_t id;
	_Atomic bool lost; /* the daemon does not know it any more */
	bool owned;	   /* no buffer's: allocated, and freed with the connection */
	/* The buffer's cell of the status page, in one of gpushm::pages; NULL: it has none. */
	const struct status_page_cell *_Atomic cell;
};

/* A lease that is to be closed when the daemon reads again. */
struct ended_lease {
	uint64_t id;
	bool discard;
};

struct gpushm {
	_Atomic unsigned refs; /* the caller's, and one for each open buffer */
	uint64_t generation;   /* process_generation() where it was made */
	int socket;

	pthread_mutex_t lock;	 /* one request in flight; everything below */
	bool broken;		 /* hang-up or violation: the next request reconnects first */
	bool greeting;		 /* broken, but HELLO is on its way to the next daemon */
	bool ended;		 /* no daemon to reconnect to: every later request fails */
	bool wait_for_successor; /* HELLO's `kept`: another daemon follows one that dies */
	bool suspends;		 /* HELLO's `suspend` */
	bool parks;		 /* HELLO's `park` */
	bool calls_only;	 /* any daemon will do while it has no leases: hello.c */
	uint64_t gave_up_at;	 /* clock_monotonic_ms() of the last failed reconnection; 0: none */
	uint64_t back_at;	 /* and of the last that succeeded: it ended all outages */
	char *path;		 /* owned; where to reconnect; NULL: endpoint_connect()'s rule */
	uint64_t session;	 /* as HELLO said it; names this connection in a RECLAIM */
	struct list leases;	 /* lease::link */
	struct status_map *pages; /* owned; the daemon's status page, then earlier daemons' */
	unsigned char daemon[DAEMON_ID_BYTES];
	uid_t uid; /* this process, as the daemon sees it */
	bool admin;
	struct pool_info *pools;     /* owned; HELLO adds to it; immutable but for pool_fd */
	uid_t server_uid;	     /* owner of the files that the daemon sends */
	_Atomic uint64_t timeout_ms; /* for a reply, beside the request's own time; 0: no limit */
	pid_t daemon_pid;	     /* in its own PID namespace; 0: it does not say */
	/* The request that was sent last. */
	Gpushm__Proto__Request__VerbCase verb;
	uint64_t sent_at; /* ns, CLOCK_MONOTONIC */
	uint64_t own_ms;  /* what the daemon may take for it: the caller's wait, and its driver's */
	uint64_t most_ms; /* for the request under way instead of timeout_ms, if less; 0: not */
	struct gpushm_watch *_Atomic wanted; /* owned; of gpushm_wanted_fd() */
	const void *call; /* the gpushm_call whose request it is; NULL: a thread waits for it, or
			     nobody; then */
	bool late;	  /* nobody waits for its reply any more, and it has not come */
	struct ended_lease *ended_leases; /* owned; no CLOSE of these was sent so far */
	size_t n_ended_leases;
	struct arena arena; /* of the reply that is being read */
	struct frame frame;
	unsigned char sent[FRAME_MAX]; /* the packed request: sending allocates nothing */
};

/* Takes over *fd, a socket of endpoint_connect() on which HELLO has not been said. The caller owns
 * the one reference. 0, -ENOMEM, or -EINVAL for $GPUSHM_TIMEOUT_MS, with gpushm_error() set. */
int connection_new(int *fd, uid_t server, const char *path, struct gpushm **ret);
struct gpushm *connection_ref(struct gpushm *c);
/* The last one closes the socket. NULL is allowed. Returns NULL. */
struct gpushm *connection_unref(struct gpushm *c);

/* 0, or -ECHILD with gpushm_error() set where the process forked after `generation` was taken. */
int connection_check_fork(uint64_t generation);
/* The same for a connection, and -EINVAL for NULL. */
int connection_check(const struct gpushm *c);

/* Whether the daemon has gone, and nothing of this process went with it. Then all that it said is
 * forgotten, and the next one is waited for. */
bool connection_start_anew(struct gpushm *c);

/* Whether it was made for calls, and no daemon has replied yet. */
static inline bool connection_is_new(const struct gpushm *c)
{
	return c->calls_only && c->session == 0;
}

struct pool_info *connection_pool(const struct gpushm *c, uint32_t id); /* NULL: unknown */

/* ---- one request, one reply; the caller has c->lock ---- */

/* How long the caller lets the daemon wait before it replies; NULL: it is not to wait. */
uint64_t *connection_wait_of(const Gpushm__Proto__Request *request);
/* The next daemon waits for what is left; so does the same one if it is asked again. */
void connection_shorten_wait(const Gpushm__Proto__Request *request, uint64_t until);

/* Receives what is still due on the connection, and drops it: the reply to a request whose time was
 * over. What it brings is given back: descriptors are closed, and a lease is ended. Then ends the
 * leases that connection_end_lease() could not end. It must have succeeded before the next request
 * is sent, because the daemon lets a client have one request in flight. Waits until `until`, ns of
 * CLOCK_MONOTONIC; 0: not at all. 0; -ETIMEDOUT, -EINTR: it is still due; -EBUSY: a gpushm_call is
 * under way; -ECONNRESET, -EPROTO: the connection is broken. gpushm_error() is set. */
int connection_settle(struct gpushm *c, uint64_t until);

/* When the time of a request is over that begins at `since`, without its own time; both in ns. */
uint64_t connection_deadline(const struct gpushm *c, uint64_t since);

/* Sends a request. flags: MSG_DONTWAIT, or 0. 0 also where the daemon has hung up:
 * connection_receive() finds that out, and what the daemon had said before. -ETIMEDOUT: the daemon
 * reads nothing, or, with MSG_DONTWAIT, the socket is full. */
int connection_send(struct gpushm *c, const Gpushm__Proto__Request *request, int flags);

/* Sends one that has no reply, if that needs no wait. */
void connection_send_quiet(struct gpushm *c, const Gpushm__Proto__Request *request);

/* When the time of the request that was sent last is over. */
uint64_t connection_due(const struct gpushm *c);

/* Nobody waits for its reply any more, which may still come. r: why, -ETIMEDOUT or -EINTR. Sets
 * gpushm_error(), and returns r. */
int connection_give_up(struct gpushm *c, int r);

/* Sends a CLOSE that has no reply. Where the daemon reads nothing, or its reply to an earlier
 * request is due, the CLOSE is sent before the next request. 0; -ECONNRESET: the connection is
 * broken, or no daemon reads it; else -errno with gpushm_error() set. */
int connection_end_lease(struct gpushm *c, uint64_t lease, bool discard);

/* Receives the reply to what was sent. flags: of recvmsg(2); with MSG_DONTWAIT -EAGAIN means that
 * no reply has come, and sets no text. *ret lies in the arena until the next reply, c->frame has
 * the fds. A reply that is an error becomes this function's -errno. -ECONNRESET, -EPROTO. -EMFILE:
 * the process had no free fds for those of an attach; its lease has been ended. -ETIMEDOUT: the
 * connection's time is over; -EINTR: gpushm_private_on_interrupt()'s function ended the wait. Then
 * the reply is late: connection_settle(). gpushm_error() is set. */
int connection_receive(struct gpushm *c, int flags, Gpushm__Proto__Reply **ret);

/* Sends, and waits for the reply. Does not reconnect. */
int connection_exchange(struct gpushm *c, const Gpushm__Proto__Request *request,
			Gpushm__Proto__Reply **ret);

/* A request with one message in it: request_with(STAT, stat, &m). It lives as long as the block. */
#define request_with(verb, field, message)                                            \
	(&(Gpushm__Proto__Request){                                                   \
		.base = PROTOBUF_C_MESSAGE_INIT(&gpushm__proto__request__descriptor), \
		.verb_case = GPUSHM__PROTO__REQUEST__VERB_##verb,                     \
		.field = (message) })

/* A C string as the protocol's bytes, borrowed. */
static inline ProtobufCBinaryData connection_bytes(const char *text)
{
	return (ProtobufCBinaryData){ .len = strlen(text), .data = (uint8_t *)text };
}

/* Checks of the fields of a reply. Each returns 0, or -EPROTO with gpushm_error() set where the
 * field makes no sense; results are written on success only. */

/* Text of at most size - 1 bytes without a NUL inside, terminated in ret. Absent: "". */
int decode_text(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from, char *ret,
		size_t size);

/* Exactly n bytes. */
int decode_bytes(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from,
		 unsigned char *ret, size_t n);

int decode_state(protobuf_c_boolean has, int from, enum gpushm_state *ret);
int decode_access(protobuf_c_boolean has, int from, enum gpushm_access *ret);

/* Whether this library knows the kind of pool; a later daemon may have others. */
bool decode_kind_known(const Gpushm__Proto__Pool *from);
