/* SPDX-License-Identifier: MIT
 *
 * A connection to the daemon for all threads, which is made anew when the daemon has gone.
 */
#pragma once

#include "client/gpushm.h"

#include <pthread.h>

struct daemon_link {
	const char *socket; /* borrowed; NULL: as libgpushm finds it */
	pthread_mutex_t lock;
	struct gpushm *c; /* under lock; NULL: there is none */
};

void daemon_link_init(struct daemon_link *l, const char *socket);

/* Takes the connection for one request, and makes it if there is none. 0, or the error of
 * gpushm_connect(). */
int daemon_link_take(struct daemon_link *l, struct gpushm **ret);
/* result: of the request. A connection that has failed is not used again. */
void daemon_link_give(struct daemon_link *l, int result);
