/* SPDX-License-Identifier: MIT
 *
 * A thread that asks the daemon, over a connection that nobody else uses and that is made anew when
 * the daemon has gone. A daemon that hangs blocks this thread and its questions; a thread that
 * waits for an answer may stop waiting at any time.
 */
#pragma once

#include "client/gpushm.h"
#include "proto/base/list.h"

struct daemon_link;

/* Owned by who puts it, and left alone until `done`. */
struct daemon_question {
	struct list link; /* daemon_link::questions */
	/* Makes one request. It is called once more, with a new connection, if the old one turns
	 * out to be broken. NULL: there is nothing to ask, and `done` closes a buffer. */
	int (*ask)(struct gpushm *c, struct daemon_question *q);
	/* Its last use. r: what `ask` has returned, or the error of gpushm_connect(). */
	void (*done)(struct daemon_question *q, int r);
};

/* Starts the thread, which lives until the process ends. socket: borrowed; NULL: as libgpushm finds
 * it. 0 or -errno. */
int daemon_link_start(const char *socket, struct daemon_link **ret);

/* Has the thread ask this, after what was put before. Returns at once. */
void daemon_link_put(struct daemon_link *l, struct daemon_question *q);
