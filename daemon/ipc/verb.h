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

typedef int verb_function(struct session *s, const Gpushm__Proto__Request *q, struct answer *a,
			  struct fault *f);

verb_function verb_create, verb_describe, verb_publish, verb_close; /* verb_create.c */
verb_function verb_open, verb_stat;				    /* verb_open.c */
verb_function verb_flush;					    /* verb_flush.c */

verb_function verb_watch;   /* verb_watch.c */
verb_function verb_reclaim; /* verb_reclaim.c */
verb_function verb_restart; /* verb_restart.c */

int verb_bad_request(struct fault *f, const char *verb, const char *what);

/* The key of a name that a request must have. */
int verb_key(struct session *s, const char *verb, bool has, ProtobufCBinaryData name,
	     char key[KEY_MAX + 1], struct fault *f);

#endif
