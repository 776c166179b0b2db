/* SPDX-License-Identifier: MIT
 *
 * A request: one frame from a client, decoded, checked and carried out. Each request has its
 * handler in the file that is named behind it; the client's half is in the file of the same name in
 * client/lib/link or client/lib/buffer.
 */
#pragma once

#include "daemon/catalog/private_names.h"
#include "daemon/ipc/reply.h"
#include "daemon/ipc/session.h"

/* Carries a frame out. 0: *ret is to be sent; it may be a refusal. -EINPROGRESS: s->on_reply() is
 * called later. -ERESTART: a part of the work is done; pass the same frame once more, after other
 * users have had their turn. -EPROTO: the frame breaks the protocol, *f says how, and the
 * connection must be closed. */
int request_handle(struct session *s, const void *data, size_t len, struct reply *ret,
		   struct fault *f);

/* For a daemon that is about to end: carries the frame out if it is a CLOSE that wants no reply.
 * All other requests are dropped: their clients got no reply and send them again. */
void request_handle_quiet_close(struct session *s, const void *data, size_t len);

/* A handler returns 0 with the reply filled in, -EINPROGRESS, -ERESTART, or another -errno with *f
 * filled in. */
typedef int request_function(struct session *s, const Gpushm__Proto__Request *q,
			     struct reply *reply, struct fault *f);

request_function request_hello, request_reclaim;			       /* hello.c */
request_function request_create, request_describe, request_publish;	       /* create.c */
request_function request_open, request_close, request_suspend, request_resume; /* open.c */
request_function request_stat, request_list, request_pools, request_status;    /* query.c */
request_function request_unlink, request_clean, request_evict, request_keep, request_use,
	request_ask, request_rename, request_flush, request_restart; /* admin.c */
request_function request_park;					     /* park.c */
request_function request_watch;					     /* watch.c */
request_function request_metrics;				     /* metrics.c */
request_function request_events;				     /* events.c */
request_function request_stream, request_join, request_page, request_drop,
	request_streams; /* stream.c */

/* park.c: the process may be parked, or, for that reason, not. NULL: it has said so before, maybe
 * to an earlier daemon. */
void request_promise(struct pidfd *p, bool may, const char *unless);

/* The word for a request's field number in Request, "open"; "connect" for 0. Static. */
const char *request_verb(unsigned verb);

/* What the handlers share. */

int request_bad(struct fault *f, const char *request, const char *what);

/* The key of a name that a request must have. */
int request_key(struct session *s, const char *request, bool has, ProtobufCBinaryData name,
		char key[KEY_MAX + 1], struct fault *f);

/* The lease, of this process, that a request must have. */
int request_lease(struct session *s, const char *request, bool has, uint64_t id, struct lease **ret,
		  struct fault *f);

/* Makes the attempt. If it fails because the name does not exist, is not published or is dirty, and
 * wait_ms is not 0, the request waits until that changes: -EINPROGRESS. With while_filling a name
 * that does not exist is not waited for, also if it existed before. */
int request_attempt_or_wait(struct session *s, const char *key, uint64_t wait_ms,
			    bool while_filling, request_attempt *attempt, struct reply *reply,
			    struct fault *f);

/* What the replies to STATUS and POOLS share with that to HELLO. */

#define QUERY_SOFTWARE "gpushmd " GPUSHM_VERSION

/* Every pool as the session's client sees it, in the build arena. 0, or -ENOMEM with *f filled in.
 */
int query_pools(struct session *s, size_t *ret_n, Gpushm__Proto__Pool ***ret, struct fault *f);

/* For a request with a prefix: whether the process sees the buffer, and by a name that begins so.
 */
bool request_lists(const struct session *s, const struct buffer *b, ProtobufCBinaryData prefix);
