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
#include "proto/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

struct pool_info {
	struct pool_info *next;
	uint32_t id;
	struct map_pool map; /* what client/lib/map needs: kind, device, identity of the pool */
	char name[POOL_NAME_MAX + 1];
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

struct gpushm {
	_Atomic unsigned refs; /* the caller's, and one for each open buffer */
	uint64_t generation;   /* process_generation() where it was made */
	int socket;

	pthread_mutex_t lock;	 /* one request in flight; everything below */
	bool broken;		 /* hang-up or violation: the next request reconnects first */
	bool greeting;		 /* broken, but HELLO is on its way to the next daemon */
	bool ended;		 /* no daemon to reconnect to: every later request fails */
	bool wait_for_successor; /* HELLO's `kept`: another daemon follows one that dies */
	uint64_t gave_up_at;	 /* clock_monotonic_ms() of the last failed reconnection; 0: none */
	uint64_t back_at;	 /* and of the last that succeeded: it ended all outages */
	char *path;		 /* owned; where to reconnect; NULL: endpoint_connect()'s rule */
	uint64_t session;	 /* as HELLO said it; names this connection in a RECLAIM */
	struct list leases;	 /* lease::link */
	struct status_map *pages; /* owned; the daemon's status page, then earlier daemons' */
	unsigned char daemon[DAEMON_ID_BYTES];
	uid_t uid; /* this process, as the daemon sees it */
	bool admin;
	struct pool_info *pools; /* owned; HELLO adds to it; immutable but for pool_fd */
	uid_t server_uid;	 /* owner of the files that the daemon sends */
	Gpushm__Proto__Reply__ResultCase expected; /* the reply to the request in flight */
	struct arena arena;			   /* of the reply that is being read */
	struct frame frame;
	unsigned char sent[FRAME_MAX]; /* the packed request: sending allocates nothing */
};

/* Takes over *fd, a connected socket on which HELLO has not been said. The caller owns the one
 * reference. 0 or -ENOMEM with gpushm_error() set. */
int connection_new(int *fd, uid_t server, const char *path, struct gpushm **ret);
struct gpushm *connection_ref(struct gpushm *c);
/* The last one closes the socket. NULL is allowed. Returns NULL. */
struct gpushm *connection_unref(struct gpushm *c);

/* 0, or -ECHILD with gpushm_error() set where the process forked after `generation` was taken. */
int connection_check_fork(uint64_t generation);
/* The same for a connection, and -EINVAL for NULL. */
int connection_check(const struct gpushm *c);

struct pool_info *connection_pool(const struct gpushm *c, uint32_t id); /* NULL: unknown */

/* ---- one request, one reply; the caller has c->lock ---- */

/* Sends a request. 0 also where the daemon has hung up: connection_receive() finds that out, and
 * what the daemon had said before. */
int connection_send(struct gpushm *c, const Gpushm__Proto__Request *request);

/* Sends a request that has no reply. 0; -ECONNRESET: no daemon reads it; else -errno with
 * gpushm_error() set. */
int connection_post(struct gpushm *c, const Gpushm__Proto__Request *request);

/* Receives the reply to what was sent. flags: of recvmsg(2); with MSG_DONTWAIT -EAGAIN means that
 * no reply has come, and sets no text. *ret lies in the arena until the next reply, c->frame has
 * the fds. A reply that is an error becomes this function's -errno. -ECONNRESET, -EPROTO. -EMFILE:
 * the process had no free fds for those of an attach; its lease has been ended. gpushm_error() is
 * set.
 */
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
