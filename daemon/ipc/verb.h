/* SPDX-License-Identifier: MIT
 *
 * The verbs, as request.c's table knows them, and what they share. A verb returns 0 with the answer
 * filled in, -EINPROGRESS, or another -errno with *f filled in.
 */
#ifndef GPUSHM_DAEMON_IPC_VERB_H
#define GPUSHM_DAEMON_IPC_VERB_H

#include "daemon/catalog/private_names.h"
#include "daemon/ipc/reply.h"
#include "daemon/ipc/session.h"

typedef int request_function(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
			     struct fault *f);

request_function request_create, request_describe, request_publish,
	request_close;			     /* request_create.c */
request_function request_open, request_stat; /* request_open.c */
request_function request_flush;		     /* request_flush.c */

request_function request_watch;	  /* request_watch.c */
request_function request_reclaim; /* request_reclaim.c */
request_function request_restart; /* request_restart.c */

int request_bad(struct fault *f, const char *verb, const char *what);

/* The key of a name that a request must have. */
int request_key(struct session *s, const char *verb, bool has, ProtobufCBinaryData name,
		char key[KEY_MAX + 1], struct fault *f);

#endif
