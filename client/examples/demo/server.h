/* SPDX-License-Identifier: MIT
 *
 * A gpushmd of our own: in a new folder that nobody else can enter, with the default pools of this
 * machine. It ends with the demo, however that ends.
 */
#ifndef GPUSHM_EXAMPLES_DEMO_SERVER_H
#define GPUSHM_EXAMPLES_DEMO_SERVER_H

#include <sys/types.h>

struct server {
	pid_t pid; /* 0: not running */
	int pidfd;
	int notify;	 /* the datagram socket on which the daemon says READY=1 */
	char dir[72];	 /* "" where there is none */
	char socket[96]; /* to connect to */
};

/* Starts the program and waits until it is ready. 0, or -errno with the reason on stderr. */
int server_start(const char *program, struct server **ret);

/* Asks it to stop and waits until it has gone. 0; -EIO if it didn't end with status 0. */
int server_stop(struct server *s);

/* What the daemon wrote, to stderr. */
void server_show_log(const struct server *s);

/* Kills it if it still runs, and removes its folder. NULL is allowed. Returns NULL. */
struct server *server_free(struct server *s);

#endif
