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
	struct gpushm *c; /* under lock; NULL: not connected */
};

void daemon_link_init(struct daemon_link *l, const char *socket);

/* Makes one request, and connects first if it must; once more, with a new
 * connection, if the old one turns out to be broken. Returns what `ask` returns, or the error of
 * gpushm_connect(). */
int daemon_link_ask(struct daemon_link *l, int (*ask)(struct gpushm *c, void *user), void *user);
