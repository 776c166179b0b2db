/* SPDX-License-Identifier: MIT
 *
 * The demo's own gpushmd: in a new folder that no other user can enter, with the default pools of
 * this machine. It ends with the demo, however that ends.
 */
#pragma once

#include <sys/types.h>

struct server {
	pid_t pid; /* 0: not running */
	int pidfd;
	int notify;	 /* the datagram socket on which the daemon says READY=1 */
	char dir[72];	 /* "": none was made */
	char socket[96]; /* to connect to */
};

/* Starts the program and waits until it is ready. 0, or -errno with the reason on stderr. */
int demo_server_start(const char *program, struct server **ret);

/* Stops the daemon and waits until it has ended. 0; -ETIMEDOUT; -EIO if its status is not 0. */
int server_stop(struct server *s);

/* Copies the daemon's log to stderr. */
void server_show_log(const struct server *s);

/* Kills the daemon if it still runs, and removes its folder. NULL is allowed. Returns NULL. */
struct server *server_free(struct server *s);
