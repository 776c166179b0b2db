/* SPDX-License-Identifier: MIT
 *
 * A connection: the socket, the request that is in flight on it, and what HELLO told. Encodes
 * requests and decodes replies; generated protobuf names go no further than connection.c and the
 * verbs' files that include gpushm.pb-c.h.
 */
#ifndef GPUSHM_CLIENT_LINK_CONNECTION_H
#define GPUSHM_CLIENT_LINK_CONNECTION_H

#include "client/gpushm.h"
#include "client/link/status_map.h"
#include "client/map/map.h"
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
	struct map_pool map; /* what the mapping rooms need: kind, device, and an identity of the
				pool in this process */
	char name[POOL_NAME_MAX + 1];
	int pool_fd; /* mempool: the pool's own, told once a connection; kept so that an import
			that failed can be tried again; -1. Under the connection's lock. */
};

/* A lease that the process has, for when the daemon comes back and has to be told. */
struct held {
	struct list link; /* gpushm::held, under the connection's lock */
	uint64_t lease;
	_Atomic bool lost; /* the daemon does not know it any more */
	bool stranded;	   /* it is no buffer's any more, but the connection's own */
	/* The buffer's on the daemon's board, in one of gpushm::boards; NULL: it has none. */
	const struct status_page_cell *_Atomic slot;
};

struct gpushm {
	_Atomic unsigned refs; /* the caller's, and one for each open buffer */
	uint64_t generation;   /* of the process that made it; another one in a forked child */
	int socket;
	pthread_mutex_t lock; /* one request in flight; everything below */
	bool broken;	      /* a violation or a hang-up: a later call comes back, or fails */
	bool over;	      /* there is nothing to come back to */
	bool kept;	      /* the daemon comes back after its death, too: it is waited for */
	uint64_t in_vain_ms;  /* clock_monotonic_ms() when it was last waited for in vain; 0: it
				 never was */
	bool quiet_close;     /* a CLOSE needs no reply */
	char *path;	      /* owned; where to connect again; NULL: by the rule */
	uint64_t session;     /* as HELLO told it; what the daemon knows this connection by */
	struct list held;     /* held::link */
	struct notice_board *boards; /* owned; the daemon's, and before it those it once had */
	unsigned char daemon[DAEMON_ID_BYTES];
	uid_t uid; /* who we are to the daemon */
	bool admin;
	struct pool_info *pools; /* owned; a list that HELLO adds to; immutable but for pool_fd */
	uid_t server_uid;	 /* who owns what the daemon hands out */
	struct arena arena;	 /* of the reply that is being read */
	struct frame frame;
	unsigned char sent[FRAME_MAX]; /* the request, packed: no allocation on the way out */
};

/* Sends a request and waits for its reply; holds c->lock from success until connection_done(),
 * during which *ret (in the arena) and c->frame's fds are valid. A reply that is an error becomes
 * this function's -errno, with gpushm_error() set; then, as on any failure, the lock is not held.
 * -ECHILD in a forked child, -ECONNRESET, -EPROTO. */
int connection_call(struct gpushm *c, const Gpushm__Proto__Request *request,
		    Gpushm__Proto__Reply__ResultCase expected, Gpushm__Proto__Reply **ret);
/* The same for who has the lock, and keeps it: no reconnection, and no lock to give back. */
int connection_exchange(struct gpushm *c, const Gpushm__Proto__Request *request,
			Gpushm__Proto__Reply__ResultCase expected, Gpushm__Proto__Reply **ret);

/* The two halves of it. flags: of recvmsg(2); with MSG_DONTWAIT, -EAGAIN means that no reply has
 * come, and nothing else is said about it. -EMFILE: this process had no room for the fds of an
 * attach, whose lease has been ended. */
int connection_send(struct gpushm *c, const Gpushm__Proto__Request *request);
int connection_receive(struct gpushm *c, Gpushm__Proto__Reply__ResultCase expected, int flags,
		       Gpushm__Proto__Reply **ret);

/* As connection_call(); *ret_again: the daemon died in between and was asked once more, so that the
 * first time may have had its effect. */
int connection_call_again(struct gpushm *c, const Gpushm__Proto__Request *request,
			  Gpushm__Proto__Reply__ResultCase expected, Gpushm__Proto__Reply **ret,
			  bool *ret_again);

/* Closes the fds that nobody took and gives the lock back. */
void connection_done(struct gpushm *c);
/* connection_done() where the reply made no sense: no later call is made. Keeps gpushm_error().
 * Returns -EPROTO. */
int connection_violated(struct gpushm *c);
/* Makes a request that ends in a hang-up, unless it is refused; then connects again. */
int connection_end(struct gpushm *c, const Gpushm__Proto__Request *request);
/* Sends a request that has no reply. The caller has c->lock. 0; -ECONNRESET: nobody is there who
 * would read it, and nothing has changed; else -errno with gpushm_error() set. */
int connection_post(struct gpushm *c, const Gpushm__Proto__Request *request);
/* Makes a request whose reply tells nothing but success (Done). */
int connection_tell(struct gpushm *c, const Gpushm__Proto__Request *request);

/* Takes over *fd, a connected socket; HELLO has not been said. The caller holds the one reference.
 * 0 or -ENOMEM with gpushm_error() set. */
int connection_new(int *fd, uid_t server, const char *path, struct gpushm **ret);
struct gpushm *connection_ref(struct gpushm *c);
/* The last one closes the socket. NULL is allowed. Returns NULL. */
struct gpushm *connection_unref(struct gpushm *c);

/* 0, or -ECHILD with gpushm_error() set, where the process forked after `generation` was taken. */
int connection_check_fork(uint64_t generation);

struct pool_info *connection_pool(const struct gpushm *c, uint32_t id); /* NULL: none */

/* Whether a name can be asked for at all; the rest of the rule for names is the daemon's to check.
 * 0, or -EINVAL with gpushm_error() set. */
int connection_check_name(const char *name);

/* A C string as the protocol's bytes, borrowed. */
static inline ProtobufCBinaryData connection_bytes(const char *text)
{
	return (ProtobufCBinaryData){ .len = strlen(text), .data = (uint8_t *)text };
}

#endif
